"""Configurations that others publish, rewritten from what they state: right ones are taken, mistakes are found."""

from __future__ import annotations

from typing import Any

import pytest

from seekserve.trtllm import ModelCase, validate_llm_args
from seekserve.trtllm.data import parse

H200 = ModelCase(architecture="deepseek_v3", weights="fp8_block", sm=90)
B200 = ModelCase(architecture="deepseek_v3", weights="nvfp4", sm=100)
V4_B200 = ModelCase(architecture="deepseek_v4", weights="fp8_block+mxfp4", sm=100)

# NVIDIA/TensorRT-LLM examples/models/core/deepseek_v4/README.md @3699edadb
V4_README = """
tensor_parallel_size: 8
moe_expert_parallel_size: 8
max_seq_len: 4096
custom_tokenizer: deepseek_v4
kv_cache_config: {tokens_per_block: 128, free_gpu_memory_fraction: 0.5}
enable_attention_dp: true
attention_dp_config: {batching_wait_iters: 0, enable_balance: true, timeout_iters: 60}
cuda_graph_config: {enable_padding: true}
moe_config: {backend: TRTLLM}
max_batch_size: 16
max_num_tokens: 8192
stream_interval: 10
"""
# examples/configs/curated/deepseek-v4-pro-throughput.yaml @af3ec5c7, as summarised
V4_THROUGHPUT = """
enable_attention_dp: true
kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.6, enable_block_reuse: false, tokens_per_block: 128}
max_batch_size: 32
max_num_tokens: 8448
max_seq_len: 9256
speculative_config: {decoding_type: MTP, max_draft_len: 1}
moe_config: {backend: TRTLLM, use_low_precision_moe_combine: true}
"""
# The deployment guide for DeepSeek-R1 @7c22bbf9: FP8 on H200
R1_H200 = """
tensor_parallel_size: 8
moe_expert_parallel_size: 8
max_batch_size: 128
max_num_tokens: 8192
enable_attention_dp: false
kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.8}
moe_config: {backend: CUTLASS}
cuda_graph_config: {enable_padding: true, max_batch_size: 128}
"""
# NVFP4 on B200 with MTP, the same guide and examples/models/core/deepseek_v3/README.md
R1_B200 = """
tensor_parallel_size: 8
moe_expert_parallel_size: 8
max_batch_size: 256
max_num_tokens: 3072
kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.85}
moe_config: {backend: TRTLLM}
speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}
enable_chunked_prefill: true
"""
# docs of 0.19 to 0.20, still copied
R1_OF_2025 = """
use_cuda_graph: true
cuda_graph_padding_enabled: true
cuda_graph_batch_sizes: [1, 2, 4, 8]
moe_backend: TRTLLM
kv_cache_dtype: fp8
speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}
"""
# examples/configs/curated/deepseek-r1-throughput.yaml @180e9756 holds this key at the top level
R1_CURATED = "kv_cache_free_gpu_memory_fraction: 0.85\nenable_attention_dp: true\n"
# ai-dynamo/aiconfigurator pull request 447: nested for the wrong backend
NESTED = "build_config: {max_batch_size: 64, max_num_tokens: 8192}\n"


def judged(text: str, version: str, case: ModelCase) -> tuple[set[str], set[str]]:
    args: dict[str, Any] = parse(text, where="example")
    found = validate_llm_args(args, version, case=case)
    return {each.path for each in found if each.is_error}, {each.path for each in found if not each.is_error}


@pytest.mark.parametrize(
    ("text", "version", "case", "doubts"),
    [
        (V4_README, "1.4", V4_B200, set()),
        (V4_THROUGHPUT, "1.4", V4_B200, set()),
        (R1_H200, "1.2.1", H200, set()),
        (R1_H200, "1.3.0rc20", H200, set()),
        (R1_H200, "1.4", H200, set()),
        (R1_B200, "1.2.1", B200, set()),
        (R1_B200, "1.4", B200, {"speculative_config.num_nextn_predict_layers"}),
    ],
)
def test_a_published_configuration_is_taken(text: str, version: str, case: ModelCase, doubts: set[str]) -> None:
    assert judged(text, version, case) == (set(), doubts)


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        (
            R1_OF_2025,
            {"use_cuda_graph", "cuda_graph_padding_enabled", "cuda_graph_batch_sizes", "moe_backend", "kv_cache_dtype"},
        ),
        (R1_CURATED, {"kv_cache_free_gpu_memory_fraction"}),
        (NESTED, {"build_config"}),
    ],
)
@pytest.mark.parametrize("version", ["1.2.1", "1.3.0rc20", "1.4"])
def test_a_known_mistake_is_found(text: str, mistakes: set[str], version: str) -> None:
    assert judged(text, version, ModelCase())[0] == mistakes


def test_v4_s_configuration_is_not_for_1_2() -> None:
    errors, doubts = judged(V4_THROUGHPUT, "1.2.1", V4_B200)
    # MTP's length had another name, under which 1 is the default: the argument would silently lose.
    assert errors == {"speculative_config.max_draft_len"}
    assert doubts == set()
