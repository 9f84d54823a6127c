"""Family x engine x version, precision x architecture: refusals in one sentence with what works instead."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_plans import CONFIGS, messages, model

from seekserve.errors import ConfigError
from seekserve.plan.gpus import catalogue, find_gpu
from seekserve.plan.support import default_engine, engine_refusal, precision_refusal, support_for, weights_supported
from seekserve.plan.versions import version_key


@pytest.mark.parametrize(
    ("name", "flags", "texts"),
    [
        ("deepseek-v3", {"engine": "trtllm-engine"}, ["noaux_tc", "--engine trtllm-pytorch (TensorRT-LLM >= 0.17)"]),
        ("deepseek-v2-lite", {"engine": "trtllm-pytorch"}, ["AutoDeploy", "--engine trtllm-engine", "1.3.0rc20"]),
        ("deepseek-moe-16b", {"engine": "trtllm-pytorch"}, ["no DeepseekForCausalLM", "--engine trtllm-engine"]),
        (
            "deepseek-v4-flash",
            {"trtllm_version": "1.2.1"},
            ["1.3.0rc21 and later", "1.2.1", "--trtllm-version 1.4.0rc4"],
        ),
        (
            "deepseek-v2",
            {"trtllm_version": "1.4.0rc4"},
            ["0.15.0 to 1.3.0rc20", "not 1.4.0rc4", "--trtllm-version 1.2.1"],
        ),
        ("deepseek-v3", {"trtllm_version": "9.9"}, ["9.9 is not known here", "the nearest is"]),
        ("deepseek-v4.1-flash", {}, ["V4.1", "no engine kind of a release runs it yet"]),
    ],
)
def test_an_engine_that_cannot_run_a_family_names_the_one_that_can(
    name: str, flags: dict[str, Any], texts: list[str]
) -> None:
    found = messages(name, "b200", gpus=8, **flags)
    for text in texts:
        assert text in found["engine-support"]


@pytest.mark.parametrize(
    ("name", "gpu", "texts"),
    [
        ("deepseek-v3", "a100", ["SM80", "128x128-block FP8", "h100-sxm-80gb"]),
        ("deepseek-v3", "l40s", ["SM89"]),
        ("deepseek-v3", "rtx-pro-6000", ["SM120"]),
        ("deepseek-v4-flash", "h200", ["mxfp4", "Blackwell", "b200-sxm-180gb"]),
    ],
)
def test_a_precision_without_kernels_names_gpus_that_have_them(name: str, gpu: str, texts: list[str]) -> None:
    found = messages(name, gpu, gpus=8)
    for text in texts:
        assert text in found["precision-hardware"]


@pytest.mark.parametrize(
    ("precision", "gpu", "works"),
    [
        ("bf16", "a100", True),
        ("fp8_tensor", "l40s", True),
        ("fp8_tensor", "a100", False),
        ("fp8_block", "h20", True),
        ("fp8_block", "b300", True),
        ("fp8_block", "l40s", False),
        ("w4afp8", "h200", True),
        ("w4afp8", "b200", False),
        ("nvfp4", "b200", True),
        ("nvfp4", "h200", False),
        ("nvfp4", "rtx-pro-6000-blackwell-server", True),
        ("fp8_block+mxfp4", "b200", True),
        ("fp8_block+mxfp4", "rtx-pro-6000-blackwell-server", False),
    ],
)
def test_one_table_says_which_gpu_has_which_precision(precision: str, gpu: str, works: bool) -> None:
    refused = precision_refusal(precision, find_gpu(gpu))
    assert (refused is None) is works
    if refused is not None:
        assert gpu not in refused[1]
        assert all(precision_refusal(precision, catalogue()[name]) is None for name in refused[1])


def test_every_bundled_family_has_an_engine_or_a_reason() -> None:
    for path in CONFIGS.glob("*.json"):
        made = model(path.stem)
        support = support_for(made.family, default_engine(made.family))
        refused = engine_refusal(made.family, made.name, default_engine(made.family), "1.2.1")
        assert support is not None or (refused is not None and "released" in refused[0]), path.stem


def test_a_cache_format_that_the_engine_lacks_is_refused() -> None:
    assert "--kv-dtype bf16" in messages("deepseek-v2-lite", "h100", gpus=1, kv_dtype="fp8_e4m3")["kv-dtype"]
    assert "--kv-dtype" in messages("deepseek-v3", "h200", gpus=8, kv_dtype="fp32")["kv-dtype"]


@pytest.mark.parametrize(
    ("name", "gpu", "flags", "rule"),
    [
        ("deepseek-v3", "h200", {"block_tokens": 32}, "block-size"),
        ("deepseek-v4-flash", "b200", {"block_tokens": 64}, "block-size"),
        ("deepseek-v2-lite", "h100", {"mtp": 1}, "mtp-support"),
        ("deepseek-v3", "h200", {"max_seq_len_tokens": 200_000}, "sequence-within-model"),
        ("deepseek-v3", "h200", {"isl": 9000, "osl": 500, "max_seq_len_tokens": 8192}, "workload-within-sequence"),
        ("deepseek-v3", "h200", {"prefill_chunk_tokens": 9000, "max_num_tokens": 8192}, "chunk-within-step"),
        ("deepseek-v3", "h200", {"prefill_chunk_tokens": 1024, "max_num_tokens": 8192}, "chunk-of-step"),
        ("deepseek-v3", "h200", {"prefill_chunk_tokens": 1024, "chunked_prefill": False}, "chunk-uncut"),
        ("deepseek-v3", "h200", {"max_batch_size": 512, "max_num_tokens": 256}, "batch-within-step"),
        ("deepseek-v2-lite", "a100", {"chunked_prefill": True}, "chunk-kernels"),
    ],
)
def test_limits_that_disagree_are_errors_with_hints(name: str, gpu: str, flags: dict[str, Any], rule: str) -> None:
    found = messages(name, gpu, gpus=8, **flags)[rule]
    assert found.startswith("error: ")
    assert "-> " in found


@pytest.mark.parametrize(
    ("family", "engine", "precision", "runs"),
    [
        ("r1_distill_qwen", "trtllm-engine", "w4a8_awq", True),
        ("r1_distill_llama", "trtllm-pytorch", "w4a8_awq", True),
        ("r1_distill_llama", "trtllm-pytorch", "fp8_channel", True),
        ("r1_distill_qwen", "trtllm-pytorch", "fp8_channel", False),
        ("deepseek_v3", "trtllm-pytorch", "bf16", True),
        ("deepseek_v3_2", "trtllm-pytorch", "bf16", False),
        ("deepseek_v2", "trtllm-engine", "w4a8_awq", False),
    ],
)
def test_precisions_by_family_are_those_of_the_published_tables(
    family: str, engine: str, precision: str, runs: bool
) -> None:
    support = support_for(family, engine)
    assert support is not None
    assert weights_supported(support, precision) == runs


@pytest.mark.parametrize(("gpu", "has"), [("a100", False), ("l40s", True), ("h100", True), ("b200", False)])
def test_four_bit_weights_with_fp8_activations_are_for_ada_and_hopper(gpu: str, has: bool) -> None:
    assert (precision_refusal("w4a8_awq", find_gpu(gpu)) is None) == has


@pytest.mark.parametrize("precision", ["awq", "gptq"])
@pytest.mark.parametrize(
    ("gpu", "has"),
    [("a100", True), ("l40s", True), ("h100", True), ("b200", False), ("rtx-pro-6000-blackwell-server", False)],
)
def test_four_bit_weights_with_plain_activations_end_before_blackwell(precision: str, gpu: str, has: bool) -> None:
    refusal = precision_refusal(precision, find_gpu(gpu))
    assert (refusal is None) == has
    assert refusal is None or "Hopper (SM90)" in refusal[0]


def test_a_chunk_that_ends_inside_a_block_is_a_warning() -> None:
    assert "--prefill-chunk 960" in messages(gpus=8, prefill_chunk_tokens=1000)["chunk-in-blocks"]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.2.1", "1.3.0rc20"),
        ("1.3.0rc20", "1.3.0rc21"),
        ("1.3.0rc27", "1.3.0"),
        ("1.3.0", "1.4.0rc4"),
        ("0.17", "0.17.1"),
    ],
)
def test_candidates_come_before_their_release(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)


@pytest.mark.parametrize("text", ["", "latest", "1", "1.2.x", "1.2.1; rm"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no TensorRT-LLM version"):
        version_key(text)
