"""A reader of llm_args.yaml that knows nothing of this toolkit: its own lists of what a version takes, and the sums.

Held against each golden, so that a mistake in the toolkit's own tables does not pass its own check. The lists were
written from NVIDIA/TensorRT-LLM's llm_args.py and its READMEs of deepseek_v3 and deepseek_v4, not from our tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

TOP = {
    "tensor_parallel_size": int,
    "pipeline_parallel_size": int,
    "moe_expert_parallel_size": int,
    "moe_tensor_parallel_size": int,
    "gpus_per_node": int,
    "enable_attention_dp": bool,
    "max_batch_size": int,
    "max_num_tokens": int,
    "max_seq_len": int,
    "max_beam_width": int,
    "enable_chunked_prefill": bool,
    "stream_interval": int,
    "enable_iter_perf_stats": bool,
    "skip_tokenizer_init": bool,
    "enable_lm_head_tp_in_adp": bool,
    "kv_cache_config": dict,
    "scheduler_config": dict,
    "cuda_graph_config": (dict, type(None)),
    "moe_config": dict,
    "speculative_config": dict,
    "attention_dp_config": dict,
    "sparse_attention_config": dict,
}
NESTED = {
    "kv_cache_config": {
        "dtype": str,
        "tokens_per_block": int,
        "free_gpu_memory_fraction": float,
        "max_tokens": int,
        "enable_block_reuse": bool,
        "host_cache_size": int,
        "use_uvm": bool,
    },
    "scheduler_config": {"capacity_scheduler_policy": str},
    "cuda_graph_config": {"batch_sizes": list, "enable_padding": bool},
    "moe_config": {"backend": str, "max_num_tokens": int},
    "attention_dp_config": {"enable_balance": bool, "batching_wait_iters": int, "timeout_iters": int},
    "speculative_config": {
        "decoding_type": str,
        "use_relaxed_acceptance_for_thinking": bool,
        "relaxed_topk": int,
        "relaxed_delta": float,
    },
    "sparse_attention_config": {"algorithm": str},
}
ONLY: dict[str, dict[str, Any]] = {
    "1.2": {"speculative_config": {"num_nextn_predict_layers": int}},
    "1.4": {
        "": {"custom_tokenizer": str},
        "speculative_config": {"max_draft_len": int},
        "sparse_attention_config": {"indexer_k_dtype": str},
    },
}
MOE_BACKENDS = {
    "1.2": {"CUTLASS", "CUTEDSL", "WIDEEP", "TRTLLM", "DEEPGEMM", "VANILLA", "TRITON"},
    "1.4": {"CUTLASS", "CUTEDSL", "TRTLLM", "DEEPGEMM", "VANILLA", "TRITON", "DENSEGEMM", "MARLIN"},
}


class UniqueLoader(yaml.SafeLoader):
    """A key given twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"repeated key in {keys}"
        return super().construct_mapping(node, deep)


def read_strictly(path: Path, line: str) -> dict[str, Any]:
    """`line` is 1.2 or 1.4. AssertionError for anything that this version would not take."""
    args = yaml.load(path.read_text(encoding="utf-8"), UniqueLoader)
    assert isinstance(args, dict)
    _members(args, {**TOP, **ONLY[line].get("", {})}, "")
    for section, fields in NESTED.items():
        if args.get(section) is not None:
            _members(args[section], {**fields, **ONLY[line].get(section, {})}, f"{section}.")
    _sums(args)
    backend = args.get("moe_config", {}).get("backend")
    assert backend is None or backend in MOE_BACKENDS[line]
    return args


def _members(given: dict[str, Any], fields: dict[str, Any], prefix: str) -> None:
    for key, value in given.items():
        assert key in fields, f"{prefix}{key} is unknown"
        wanted = fields[key]
        assert isinstance(value, wanted), f"{prefix}{key} is {value!r}"
        assert wanted is bool or not isinstance(value, bool), f"{prefix}{key} is {value!r}"


def _sums(args: dict[str, Any]) -> None:
    if "moe_expert_parallel_size" in args:
        assert args["moe_expert_parallel_size"] * args["moe_tensor_parallel_size"] == args["tensor_parallel_size"]
    world = args["tensor_parallel_size"] * args["pipeline_parallel_size"]
    assert world % args["gpus_per_node"] == 0
    cache, graphs = args["kv_cache_config"], args["cuda_graph_config"]
    assert 0 < cache["free_gpu_memory_fraction"] <= 1
    assert cache.get("dtype", "auto") in ("auto", "fp8"), "other words are refused when the weights are loaded"
    assert args["max_batch_size"] <= args["max_num_tokens"]
    if graphs is not None:
        assert graphs["batch_sizes"] == sorted(set(graphs["batch_sizes"]))
        assert graphs["batch_sizes"][-1] <= args["max_batch_size"]
    assert args["enable_iter_perf_stats"]
    assert args["skip_tokenizer_init"]
