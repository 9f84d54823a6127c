"""Which model it is: by content, honestly, and never by the name of a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.toy import qwen_toy, v3_toy

from seekserve.checkpoint import ModelFacts, read_checkpoint
from seekserve.checkpoint.config import parse_config
from seekserve.checkpoint.families import Identity, identify
from seekserve.checkpoint.findings import Collector

CONFIGS = Path(__file__).parent / "configs"
THINKING = "{{ '<｜Assistant｜><think>\\n' }}"


def named(file: str, template: str | None = None, **changes: Any) -> Identity:
    raw = {**json.loads((CONFIGS / f"{file}.json").read_text(encoding="utf-8")), **changes}
    config = parse_config(raw, "config.json", Collector())
    assert config is not None
    return identify(config, template, Collector(), "config.json")


def test_v3_and_r1_are_not_told_apart_by_config() -> None:
    assert named("deepseek-v3") == named("deepseek-r1")
    assert "V3 or R1" in named("deepseek-r1").title


def test_a_chat_template_that_thinks_proves_r1() -> None:
    found = named("deepseek-r1", THINKING)
    assert (found.family, found.architecture) == ("deepseek_r1", "deepseek_v3")


def test_power_of_two_scales_prove_v31() -> None:
    found = named("deepseek-v3.1", THINKING)
    assert (found.family, found.architecture) == ("deepseek_v3_1", "deepseek_v3")


def test_a_small_model_of_the_v3_architecture_is_deepseek_v3(inspect_toy: Callable[..., ModelFacts]) -> None:
    facts = inspect_toy(v3_toy())
    assert (facts.family, facts.architecture) == ("deepseek_v3", "deepseek_v3")
    assert "own shape: 2 layers, hidden 16, 4 experts" in facts.identity.title


def test_v2_lite_is_known_by_its_plain_query() -> None:
    assert named("deepseek-v2-lite").family == "deepseek_v2_lite"
    assert named("deepseek-v2-lite").architecture == named("deepseek-v2").architecture == "deepseek_v2"


def test_flash_and_pro_share_a_model_type_and_are_told_apart_by_size() -> None:
    assert named("deepseek-v4-flash").family == "deepseek_v4_flash"
    assert named("deepseek-v4-pro").family == "deepseek_v4_pro"


def test_a_distill_is_what_its_config_says_whatever_the_folder_is_called(tmp_path: Path) -> None:
    facts = read_checkpoint(qwen_toy().write(tmp_path / "DeepSeek-V3"))
    assert (facts.family, facts.architecture) == ("qwen2", "qwen2")
    assert "no DeepSeek model" in facts.identity.title
    assert facts.errors == ()


def test_a_distill_is_called_one_when_its_template_has_deepseek_tokens() -> None:
    assert "R1-Distill-Qwen-7B (Qwen2 architecture, not DeepSeek-V3)" in named("r1-distill-qwen-7b", THINKING).title
    assert "with the shape of" in named("r1-distill-llama-8b").title


def test_an_unknown_model_is_named_as_unknown_with_what_was_read(inspect_toy: Callable[..., ModelFacts]) -> None:
    toy = qwen_toy()
    toy.config.update(model_type="mystery", architectures=["MysteryForCausalLM"])
    facts = inspect_toy(toy)
    assert facts.family == "unknown"
    [finding] = [f for f in facts.findings if f.code == "family-unknown"]
    assert "mystery" in finding.message
    assert "MysteryForCausalLM" in finding.message
    assert facts.parameters.main == sum(_elements(t.shape) for t in toy.tensors.values())
    assert facts.parameters.active is None


def test_model_type_and_class_that_disagree_are_a_warning() -> None:
    findings = Collector()
    raw = json.loads((CONFIGS / "deepseek-v3.json").read_text(encoding="utf-8"))
    config = parse_config({**raw, "model_type": "deepseek_v2"}, "config.json", Collector())
    assert config is not None
    assert identify(config, None, findings, "config.json").architecture == "deepseek_v3"
    assert [finding.code for finding in findings.findings] == ["config-architecture"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("kv_lora_rank", None), ("v_head_dim", 0), ("moe_intermediate_size", "8"), ("num_experts_per_tok", None)],
)
def test_a_field_that_the_family_needs_is_missed_by_name(
    inspect_toy: Callable[..., ModelFacts], field: str, value: object
) -> None:
    toy = v3_toy()
    toy.config[field] = value
    facts = inspect_toy(toy)
    assert any(finding.code == "config-field" and field in finding.message for finding in facts.errors)


def _elements(shape: tuple[int, ...]) -> int:
    out = 1
    for extent in shape:
        out *= extent
    return out
