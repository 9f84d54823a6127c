"""config.json: typed, both RoPE spellings, nested text config, every fault named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.checkpoint.toy import FP8_CONFIG, V3_CONFIG, v3_toy, write_json

from seekserve.checkpoint import read_checkpoint, read_config
from seekserve.checkpoint.config import parse_config
from seekserve.checkpoint.findings import Collector
from seekserve.checkpoint.report import report_json, report_text
from seekserve.errors import CheckpointError

YARN = {"factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}


def parsed(**changes: Any) -> Any:
    return parse_config({**V3_CONFIG, **changes}, "config.json", Collector())


def problems(**changes: Any) -> list[str]:
    findings = Collector()
    parse_config({**V3_CONFIG, **changes}, "config.json", findings)
    return [finding.message for finding in findings.findings]


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_both_rope_spellings_carry_the_whole_block(key: str) -> None:
    rope = parsed(rope_scaling={key: "yarn", **YARN}).rope_scaling
    assert (rope.kind, rope.factor, rope.original_max_position_tokens) == ("yarn", 40.0, 4096)
    assert rope.raw["mscale_all_dim"] == 1.0


@pytest.mark.parametrize("block", [None, {"rope_type": "default"}])
def test_no_scaling_is_none(block: object) -> None:
    assert parsed(rope_scaling=block).rope_scaling is None


def test_the_newer_rope_parameters_are_read_too() -> None:
    rope = parsed(rope_scaling=None, rope_parameters={"rope_type": "yarn", **YARN}).rope_scaling
    assert rope.factor == 40.0


def test_rope_scaling_without_a_kind_is_named() -> None:
    assert any("rope_scaling" in text and "rope_type" in text for text in problems(rope_scaling=dict(YARN)))


def test_a_null_query_rank_means_a_plain_query() -> None:
    assert parsed(q_lora_rank=None).q_lora_rank is None


def test_the_head_size_follows_from_hidden_and_heads_when_absent() -> None:
    assert parsed(hidden_size=64, num_attention_heads=4).head_dim == 16


def test_fields_of_a_nested_text_config_are_found() -> None:
    outer = {"model_type": "deepseek_v41", "text_config": {**V3_CONFIG, "hidden_size": 48}, "dtype": "bfloat16"}
    config = parse_config(outer, "config.json", Collector())
    assert config is not None
    assert (config.hidden_size, config.model_type) == (48, "deepseek_v41")


def test_several_end_ids_are_kept() -> None:
    assert parsed(eos_token_id=[1, 7]).eos_token_ids == (1, 7)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"hidden_size": "7168"}, "hidden_size"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"n_routed_experts": 10**7}, "n_routed_experts"),
        ({"vocab_size": 1.5}, "vocab_size"),
        ({"num_attention_heads": -4}, "num_attention_heads"),
        ({"kv_lora_rank": "512"}, "kv_lora_rank"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"rope_scaling": "yarn"}, "rope_scaling"),
        ({"rope_scaling": {"type": "yarn", "factor": "x"}}, "factor"),
        ({"architectures": "DeepseekV3ForCausalLM"}, "architectures"),
        ({"quantization_config": "fp8"}, "quantization_config"),
        ({"quantization_config": {}}, "quant_method"),
        ({"quantization_config": {**FP8_CONFIG, "weight_block_size": [128]}}, "weight_block_size"),
        ({"quantization_config": {**FP8_CONFIG, "quant_method": "bf16"}}, "no quantisation"),
    ],
)
def test_a_bad_value_is_named_with_what_is_needed(changes: dict[str, Any], name: str) -> None:
    assert any(name in text for text in problems(**changes))


def test_several_bad_values_are_reported_together() -> None:
    assert len(problems(hidden_size="a", vocab_size=None, num_hidden_layers=0)) == 3


def test_read_config_takes_a_file_or_its_folder(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", V3_CONFIG)
    assert read_config(tmp_path) == read_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "list"),
        (b"[" * 100_000, "deeply"),
        (b'{"hidden_size": 8}', "num_hidden_layers is absent"),
    ],
)
def test_read_config_refuses_in_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=says):
        read_config(tmp_path)


def test_read_config_of_nothing_says_that_it_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not there"):
        read_config(tmp_path / "config.json")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [*V3_CONFIG, "quantization_config", "text_config", "compress_ratios", "head_dim", "hc_mult", "index_topk"]


CLASSES = ["DeepseekForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM",
           "DeepseekV4ForCausalLM", "DeepseekV41ForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLM"]  # fmt: skip
SMALL = dict.fromkeys(
    ("index_n_heads", "index_head_dim", "index_topk", "o_lora_rank", "o_groups", "hc_mult", "sliding_window"), 2
)
LISTS = {"compress_ratios": [4, 128], "kv_source_layer_ids": [0], "index_source_layer_ids": [1], "head_dim": 8}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    class_name=st.sampled_from(CLASSES),
    changes=st.dictionaries(st.sampled_from(FIELDS), values, min_size=0, max_size=3),
)
def test_no_config_makes_the_reader_fail(tmp_path: Path, class_name: str, changes: dict[str, Any]) -> None:
    folder = tmp_path / "c"
    if not folder.exists():
        v3_toy(n_routed_experts=2).write(folder)
    whole = {**V3_CONFIG, **SMALL, **LISTS, "n_routed_experts": 2, "model_type": "", "architectures": [class_name]}
    write_json(folder / "config.json", {**whole, **changes})
    facts = read_checkpoint(folder)
    assert facts.has_layout or facts.errors
    assert report_text(facts)
    assert json.dumps(report_json(facts))
