"""Parameters of the stock `tensorrt_llm` model from what the bundle says, so that nothing is decided twice.

llm_args.yaml speaks in the words of tensorrt_llm.LLM; the table below says what the C++ model calls the same thing.
What was not set stays absent; what has no counterpart there is an error, not a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from seekserve.errors import ConflictError, InputError
from seekserve.output import problems_text
from seekserve.trtllm import raise_errors, validate_pbtxt_parameters
from seekserve_backend.contract.bundle import Bundle, TrtllmSpec

from .placement import GPU_PARAMETER, Placement

__all__ = ["parameter_text", "stock_parameters"]

_SHIPPED: Final[Mapping[str, str]] = {
    "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
    "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
}
"""Fixed in the shipped configuration; another path fits an installation elsewhere."""
_SAME_NAME: Final = (
    "max_beam_width",
    "normalize_log_probs",
    "iter_stats_max_iterations",
    "request_stats_max_iterations",
    "guided_decoding_backend",
)
_KNOBS: Final = ("multi_block_mode", "enable_context_fmha_fp32_acc", "cuda_graph_mode", "cuda_graph_cache_size")
_FROM_ARGS: Final[Mapping[str, str]] = {
    **{name: name for name in _SAME_NAME},
    **{f"extended_runtime_perf_knob_config.{name}": name for name in _KNOBS},
    "batching_type": "gpt_model_type",
    "enable_chunked_prefill": "enable_chunked_context",
    "kv_cache_config.cross_kv_cache_fraction": "cross_kv_cache_fraction",
    "kv_cache_config.enable_block_reuse": "enable_kv_cache_reuse",
    "kv_cache_config.free_gpu_memory_fraction": "kv_cache_free_gpu_mem_fraction",
    "kv_cache_config.host_cache_size": "kv_cache_host_memory_bytes",
    "kv_cache_config.max_attention_window": "max_attention_window_size",
    "kv_cache_config.max_tokens": "max_tokens_in_paged_kv_cache",
    "kv_cache_config.onboard_blocks": "kv_cache_onboard_blocks",
    "kv_cache_config.sink_token_length": "sink_token_length",
    "peft_cache_config.device_cache_percent": "lora_cache_gpu_memory_fraction",
    "peft_cache_config.host_cache_size": "lora_cache_host_memory_bytes",
    "peft_cache_config.lora_prefetch_dir": "lora_prefetch_dir",
    "peft_cache_config.max_adapter_size": "lora_cache_max_adapter_size",
    "peft_cache_config.optimal_adapter_size": "lora_cache_optimal_adapter_size",
    "scheduler_config.capacity_scheduler_policy": "batch_scheduler_policy",
}
_WORDS: Final[Mapping[str, Mapping[object, str]]] = {
    "gpt_model_type": {"INFLIGHT": "inflight_fused_batching", "STATIC": "V1"},
    "batch_scheduler_policy": {
        "GUARANTEED_NO_EVICT": "guaranteed_no_evict",
        "MAX_UTILIZATION": "max_utilization",
    },
}
_IN_THE_ENGINE: Final = frozenset(
    (
        *("model", "tokenizer", "skip_tokenizer_init", "trust_remote_code", "backend", "dtype", "gpus_per_node"),
        *("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size"),
        *("moe_tensor_parallel_size", "moe_expert_parallel_size", "moe_cluster_parallel_size"),
        *("max_batch_size", "max_num_tokens", "max_seq_len", "max_input_len", "build_config", "quant_config"),
        *("kv_cache_config.dtype", "kv_cache_config.tokens_per_block"),
    )
)
"""Fixed when the engine was built, or no matter of a model that takes and gives token ids."""


def stock_parameters(
    bundle: Bundle,
    *,
    engine_dir: Path,
    llm_args: Mapping[str, Any],
    placement: Placement,
    given: Mapping[str, str],
    has_paged_context: bool | None,
) -> tuple[dict[str, str], list[str]]:
    """The parameters and warnings. Raises ConfigError for what the version refuses, ConflictError for two answers."""
    spec = bundle.trtllm
    assert spec is not None, "the caller has checked the engine kind"
    if GPU_PARAMETER in given:
        raise InputError(f"--stock-parameter {GPU_PARAMETER}: GPUs are given as lists", hint="use --gpus 0,1")
    decided = _decided(bundle, spec, engine_dir, llm_args, placement)
    conflicts = [
        f"{name} is {given[name]!r} on the command line, but {decided[name]!r} by {_decider(name)}"
        for name in given
        if name in decided and given[name] != decided[name]
    ]
    if conflicts:
        raise ConflictError(problems_text("--stock-parameter", conflicts), hint="say it in one place")
    parameters = {**_SHIPPED, **decided, **given}
    findings = validate_pbtxt_parameters(parameters, spec.version, has_paged_context=has_paged_context)
    raise_errors(findings, f"parameters of the stock model for TensorRT-LLM {spec.version}")
    return parameters, [finding.text for finding in findings]


def parameter_text(value: object) -> str:
    """One spelling for each type: `true`, `0.85`, `4096,512`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(parameter_text, value))
    return str(value)


def _decided(
    bundle: Bundle, spec: TrtllmSpec, engine_dir: Path, llm_args: Mapping[str, Any], placement: Placement
) -> dict[str, str]:
    found = {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": str(engine_dir),
        "max_beam_width": str(spec.max_beam_width),
        **_translated(llm_args),
        # The front counts new tokens only, and a client of this model alone would expect the same.
        "exclude_input_in_output": "true",
        **placement.parameters,
    }
    if bundle.parallel.nodes > 1:
        found["num_nodes"] = str(bundle.parallel.nodes)
    return found


def _translated(llm_args: Mapping[str, Any]) -> dict[str, str]:
    found, problems = {}, []
    for path, value in _leaves(llm_args):
        if value is None or path in _IN_THE_ENGINE or path.partition(".")[0] in _IN_THE_ENGINE:
            continue
        name = _FROM_ARGS.get(path)
        words = _WORDS.get(name or "")
        if name is None:
            problems.append(f"{path} has no counterpart in the stock model")
        elif words is not None and value not in words:
            problems.append(f"{path} is {value}, but the stock model knows {', '.join(map(str, words))}")
        else:
            found[name] = words[value] if words is not None else parameter_text(value)
    if problems:
        raise ConflictError(
            problems_text("llm_args.yaml of the bundle", problems),
            hint="use --topology integrated, or build without it",
        )
    return found


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path not in _IN_THE_ENGINE:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _decider(name: str) -> str:
    return "the renderer" if name == "exclude_input_in_output" else "the bundle"
