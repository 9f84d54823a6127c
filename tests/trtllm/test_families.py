"""Which model runs where, and what a refusal says."""

from __future__ import annotations

import pytest

from seekserve.checkpoint.families import ARCHITECTURES
from seekserve.errors import ConfigError
from seekserve.plan.support import support_for
from seekserve.trtllm import ENGINE_KINDS, families_for, known_versions, support
from seekserve.trtllm.data import facts


@pytest.mark.parametrize(
    ("architecture", "kind", "runs_on"),
    [
        ("deepseek_moe", "trtllm-engine", ["1.2.1", "1.3.0rc20"]),
        ("deepseek_moe", "trtllm-pytorch", []),
        ("deepseek_v2", "trtllm-engine", ["1.2.1", "1.3.0rc20"]),
        ("deepseek_v2", "trtllm-pytorch", []),
        ("deepseek_v3", "trtllm-pytorch", ["1.2.1", "1.3.0rc20", "1.4.0rc4"]),
        ("deepseek_v3", "trtllm-engine", []),
        ("deepseek_v32", "trtllm-pytorch", ["1.2.1", "1.3.0rc20", "1.4.0rc4"]),
        ("deepseek_v4", "trtllm-pytorch", ["1.4.0rc4"]),
        ("deepseek_v41", "trtllm-pytorch", []),
        ("qwen2", "trtllm-engine", ["1.2.1", "1.3.0rc20"]),
        ("llama", "trtllm-pytorch", ["1.2.1", "1.3.0rc20", "1.4.0rc4"]),
    ],
)
def test_what_runs_where(architecture: str, kind: str, runs_on: list[str]) -> None:
    assert [version for version in known_versions() if support(architecture, kind, version).ok] == runs_on


V3_ENGINE = """
DeepSeek-V3 has no TensorRT engine path in any release
(its expert choice (noaux_tc) is refused by convert_checkpoint.py);
use --engine trtllm-pytorch (TensorRT-LLM >= 0.17)
"""
V4_TOO_EARLY = """
DeepSeek-V4 runs on trtllm-pytorch with TensorRT-LLM 1.3.0rc21 and later, not 1.2.1; use --trtllm-version 1.4.0rc4
"""
QWEN_TOO_LATE = """
Qwen2 (R1-Distill-Qwen) runs on trtllm-engine with TensorRT-LLM 0.9.0 to 1.3.0rc20, not 1.4.0rc4;
use --trtllm-version 1.2.1, or --engine trtllm-pytorch
"""


@pytest.mark.parametrize(
    ("architecture", "kind", "version", "sentence"),
    [
        ("deepseek_v3", "trtllm-engine", "1.2.1", V3_ENGINE),
        ("deepseek_v4", "trtllm-pytorch", "1.2.1", V4_TOO_EARLY),
        ("qwen2", "trtllm-engine", "1.4", QWEN_TOO_LATE),
    ],
)
def test_a_refusal_names_what_works_instead(architecture: str, kind: str, version: str, sentence: str) -> None:
    found = support(architecture, kind, version)
    assert (found.ok, found.sentence.split()) == (False, sentence.split())


def test_every_refusal_of_a_known_architecture_names_a_way_or_says_that_there_is_none() -> None:
    for architecture in ARCHITECTURES:
        for kind in ENGINE_KINDS:
            for version in known_versions():
                found = support(architecture, kind, version)
                assert found.ok or "use --" in found.sentence or "no engine kind" in found.sentence


def test_an_unknown_architecture_is_refused_with_the_nearest() -> None:
    assert support("deepseek_v5", "trtllm-pytorch", "1.4").sentence.startswith("nothing is known about architecture")
    with pytest.raises(ConfigError, match="no engine kind"):
        support("deepseek_v3", "trtllm", "1.4")


def test_families_by_version() -> None:
    assert "deepseek_v4_flash" in families_for("1.4", "trtllm-pytorch")
    assert "deepseek_v4_flash" not in families_for("1.3.0rc20", "trtllm-pytorch")
    assert families_for("1.4", "trtllm-engine") == ()
    assert {"deepseek_v2_lite", "r1_distill_qwen"} <= set(families_for("1.2", "trtllm-engine"))


def test_the_plan_asks_this_table_and_takes_a_version_that_runs_the_model() -> None:
    for architecture, entry in facts("families")["architectures"].items():
        for family in entry["families"]:
            for kind in ENGINE_KINDS:
                ours, theirs = entry["engines"].get(kind), support_for(family, kind)
                assert (ours is None) == (theirs is None), (family, kind)
                if ours is not None and theirs is not None:
                    assert support(architecture, kind, theirs.default_version).ok, (family, kind)


def test_every_architecture_that_inspect_names_is_in_the_table() -> None:
    assert set(facts("families")["architectures"]) == set(ARCHITECTURES)
