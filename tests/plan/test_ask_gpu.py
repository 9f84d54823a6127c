"""The layers of inputs of a plan for GPUs: who wins, what follows from what, and refusals that name what works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.gpu_builds import planned

from seekserve.errors import ConfigError, ConflictError, DoesNotFit, InputError, SeekserveError
from seekserve.plan.inputs import file_inputs
from seekserve.plan.target import ALL_FIELDS

TOPOLOGIES = Path(__file__).parent / "topologies"


def test_the_chunk_decides_the_step_and_the_step_the_chunk() -> None:
    def limits(**flags: Any) -> tuple[int, int]:
        found = planned("deepseek-v3", gpu="h200", **flags).limits
        return found.prefill_chunk_tokens, found.max_num_tokens

    assert limits() == (1024, 1024 + 256)
    assert limits(prefill_chunk_tokens=256, max_batch_size=64, mtp=1) == (256, 256 + 64 * 2)
    assert limits(max_num_tokens=4096) == (4096, 4096)
    assert limits(max_num_tokens=1088, prefill_chunk_tokens=1024, max_batch_size=64) == (1024, 1088)
    assert limits(chunked_prefill=False, max_num_tokens=8192) == (8192, 8192)
    with pytest.raises(ConflictError, match=r"prefill chunk 1024 \(.*\) and max_num_tokens 8192 \(.*\): ") as caught:
        limits(prefill_chunk_tokens=1024, max_num_tokens=8192)
    assert "--max-num-tokens 1280 keeps to the chunk" in str(caught.value)


def test_flags_win_over_the_environment_that_over_the_file_and_all_over_a_profile() -> None:
    file = file_inputs({"max_batch_size": 24, "kv_fraction": 0.6, "mtp": 0}, Path("seekserve.yaml"), ALL_FIELDS)
    environ = {"SEEKSERVE_KV_FRACTION": "0.5", "SEEKSERVE_MAX_BATCH_SIZE": "16"}
    plan = planned("deepseek-v3", gpu="h200", environ=environ, file=file, max_batch_size=8, profile="throughput")
    assert plan.deployment is not None
    assert plan.limits.max_batch_size == 8
    assert plan.deployment.case.fraction == 0.5
    assert plan.sources["kv_cache.fraction"] == "environment SEEKSERVE_KV_FRACTION"
    assert plan.sources["parallel.mtp"] == "file seekserve.yaml"
    assert plan.sources["limits.max_num_tokens"].startswith("preset deepseek-r1-throughput-hopper (examples/configs/")
    assert (plan.tp, plan.ep, plan.deployment.shape.attention_dp) == (8, 8, True)


def test_a_profile_gives_its_shape_to_its_own_number_of_gpus_only() -> None:
    assert (
        planned("deepseek-v3", gpu="h200", profile="throughput", gpus=16).sources["parallel.tp"].startswith("derived")
    )
    plan = planned("deepseek-v3", gpu="h200", profile="throughput", tp=8, ep=4)
    assert (plan.tp, plan.ep, plan.sources["parallel.ep"]) == (8, 4, "flag --ep")


def test_a_rule_that_asks_for_the_shape_sees_the_one_that_was_chosen() -> None:
    """FP8 experts with DEEPGEMM and MTP run out of memory at a fraction of 0.6 (pull request 13357)."""
    with_mtp = planned("deepseek-v3", gpu="b200", mtp=1)
    without = planned("deepseek-v3", gpu="b200")
    hopper = planned("deepseek-v3", gpu="h200", mtp=1)
    assert [plan.deployment.case.fraction for plan in (with_mtp, without, hopper) if plan.deployment] == [0.5, 0.9, 0.9]
    assert "13357" in with_mtp.sources["kv_cache.fraction"]
    given = planned("deepseek-v3", gpu="b200", mtp=1, kv_fraction=0.7)
    assert given.sources["kv_cache.fraction"] == "flag --kv-fraction"


def test_an_engine_of_plain_weights_keeps_a_plain_cache_unless_asked_otherwise() -> None:
    flags = {"gpu": "h100-sxm-80gb", "gpus": 1, "engine": "trtllm-engine"}
    assert planned("r1-distill-qwen-7b", **flags).kv.dtype == "bf16"
    assert planned("r1-distill-qwen-7b", quantize="fp8_tensor", **flags).kv.dtype == "fp8_e4m3"
    assert planned("r1-distill-qwen-7b", quantize="fp8_tensor", **flags).weights_dtype == "fp8_tensor"


def test_two_sources_that_disagree_about_the_shape_are_refused() -> None:
    file = file_inputs({"tp": 4}, Path("seekserve.yaml"), ALL_FIELDS)
    with pytest.raises(ConfigError, match=r"tp is 8 \(flag --tp\) and 4 \(file seekserve\.yaml\)"):
        planned("deepseek-v3", gpu="h200", tp=8, file=file)


def test_a_topology_is_judged_as_in_the_plan() -> None:
    plan = planned("deepseek-v3", gpu="h100", gpus=16, topology=TOPOLOGIES / "a100-pcie.txt")
    assert plan.deployment is not None
    assert any(found.rule.startswith("topology-") for found in plan.deployment.findings)


def test_a_version_may_be_named_by_its_line() -> None:
    plan = planned("deepseek-v3", gpu="h200", trtllm_version="1.4")
    assert plan.deployment is not None
    assert plan.deployment.target.version == "1.4.0rc4"


def test_the_engine_kind_is_that_of_the_family() -> None:
    assert planned("deepseek-v3", gpu="h200").engine == "trtllm-pytorch"
    assert planned("deepseek-v2-lite", gpu="h100-sxm-80gb", gpus=1).engine == "trtllm-engine"


@pytest.mark.parametrize(
    ("name", "flags", "error", "text"),
    [
        (
            "deepseek-v3",
            {"gpu": "h200", "engine": "trtllm-engine"},
            ConflictError,
            "has no TensorRT engine path in any",
        ),
        ("deepseek-v3", {"gpu": "h200", "engine": "trtllm-engine"}, ConflictError, "use --engine trtllm-pytorch (Tens"),
        ("deepseek-v2-lite", {"gpu": "h100", "engine": "trtllm-pytorch"}, SeekserveError, "use --engine trtllm-engine"),
        ("deepseek-v4-flash", {"gpu": "b200", "trtllm_version": "1.2"}, ConflictError, "use --trtllm-version 1.4.0rc4"),
        ("deepseek-v2-lite", {"gpu": "h200", "trtllm_version": "1.4"}, ConflictError, "use --trtllm-version 1.2.1"),
        ("deepseek-v3", {"engine": "trtllm-pytorch"}, ConfigError, "which GPU"),
        ("deepseek-v3", {"gpu": "h2000"}, ConfigError, "no GPU 'h2000' in the catalogue"),
        ("deepseek-v3", {"gpu": "h200", "gpus": 4}, DoesNotFit, "smallest that would: "),
        ("deepseek-v3", {"gpu": "a100-sxm-80gb", "gpus": 16}, ConflictError, "h100-sxm-80gb"),
        ("deepseek-v3", {"gpu": "h200", "tp": 24}, ConflictError, "tp 24"),
        ("deepseek-v3", {"gpu": "h200", "tp": 8, "moe_tp": 4, "ep": 4}, ConflictError, "and tp is 8"),
        ("r1-distill-qwen-7b", {"gpu": "h200", "gpus": 2, "tp": 2, "ep": 2}, ConflictError, "ep"),
        ("deepseek-v3", {"gpu": "h200", "trtllm_version": "9.9"}, ConfigError, "9.9 is not known here"),
        ("deepseek-v3", {"gpu": "h200", "block_tokens": 32}, ConflictError, "FlashMLA on Hopper takes 64 only"),
        ("deepseek-v3", {"gpu": "h200", "profile": "latency"}, InputError, "no guide has latency settings"),
        (
            "r1-distill-qwen-7b",
            {"gpu": "h200", "profile": "throughput"},
            InputError,
            "no guide has throughput settings",
        ),
        ("deepseek-v2-lite", {"gpu": "h200", "profile": "throughput"}, InputError, "with trtllm-engine"),
        ("deepseek-v3", {"gpu": "h200", "profile": "throughput", "preset": "latency"}, ConfigError, "give one"),
        ("deepseek-v3", {"gpu": "h200", "max_batch_size": 0}, ConfigError, "must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_built_is_refused_with_what_can(
    name: str, flags: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        planned(name, **flags)
    assert text in str(caught.value)
