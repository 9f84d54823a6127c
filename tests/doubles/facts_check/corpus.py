"""Argument sets for both sides: every known field with values of every kind, misspelt names, and members of unions.

Fields come from the double's tables and from ours together, so that neither side's omission hides the other's entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seekserve.trtllm.kinds import named
from seekserve.trtllm.schema import Field, llm_schema

Args = dict[str, Any]
VALUES: tuple[Any, ...] = (
    *(True, 0, 1, 8, -1, 0.5, 1.5, 8.0),
    *("auto", "x", "8", "[[0]]", "", None),
    *([], [1], [0], [0.5, 0.5], ["x"], {}, {"x": 1}, {1: 2}),
)
UNIONS = {
    "speculative_config": "decoding_type",
    "sparse_attention_config": "algorithm",
    "kv_cache_compression_config": "algorithm",
}
NEEDS: Mapping[str, Args] = {
    **{word: {"max_draft_len": 2} for word in ("NGram", "SA", "PARD", "DFlash", "Medusa")},
    **{
        word: {"max_draft_len": 2, "speculative_model": "/draft"}
        for word in ("Eagle", "Eagle3", "Draft_Target", "DSpark")
    },
    "SaveState": {"output_directory": "/out"},
    "User_Provided": {"drafter": "x"},
    "triattention": {"calibration_path": "/c.pt"},
}
"""What a member must be given to be accepted at all."""
CLASS_AT: Mapping[str, str] = {
    "kv_cache_config": "KvCacheConfig",
    "kv_cache_config.block_reuse_config": "BlockReuseConfig",
    "kv_cache_config.kv_events_config": "KVEventsConfig",
    "kv_cache_config.mamba_state_config": "MambaStateConfig",
    "scheduler_config": "SchedulerConfig",
    "scheduler_config.dynamic_batch_config": "DynamicBatchConfig",
    "cuda_graph_config": "EncodeCudaGraphConfig",
    "encoder_cuda_graph_config": "EncodeCudaGraphConfig",
    "moe_config": "MoeConfig",
    "moe_config.load_balancer": "MoeLoadBalancerConfig",
    "nvfp4_gemm_config": "Nvfp4GemmConfig",
    "attention_dp_config": "AttentionDpConfig",
    "cp_config": "CpConfig",
    "lora_config": "LoraConfig",
    "peft_cache_config": "PeftCacheConfig",
    "cache_transceiver_config": "CacheTransceiverConfig",
    "torch_compile_config": "TorchCompileConfig",
    "kv_connector_config": "KvCacheConnectorConfig",
    "multimodal_config": "MultimodalConfig",
    "dwdp_config": "DwdpConfig",
    "gms_config": "GmsConfig",
    "mx_config": "ModelExpressConfig",
    "telemetry_config": "TelemetryConfig",
    "sleep_config": "SleepConfig",
    "prometheus_metrics_config": "PrometheusMetricsConfig",
    "reorder_policy_config": "ReorderRequestPolicyConfig",
    "ray_placement_config": "RayPlacementConfig",
    "layer_wise_benchmarks_config": "LayerwiseBenchmarksConfig",
    "quant_config": "QuantConfig",
    "calib_config": "CalibConfig",
    "build_config": "BuildConfig",
    "extended_runtime_perf_knob_config": "ExtendedRuntimePerfKnobConfig",
}


def double_paths(classes: Mapping[str, Any], unions: Mapping[str, Mapping[str, str]]) -> set[str]:
    paths = {*classes["TorchLlmArgs"].FIELDS, *classes["TrtLlmArgs"].FIELDS}
    paths |= {f"{at}.{name}" for at, cls in CLASS_AT.items() for name in classes[cls].FIELDS}
    for union, members in unions.items():
        paths |= {f"{union}.{word}.{name}" for word, cls in members.items() for name in classes[cls].FIELDS}
    return paths - {"model"}


def our_paths() -> dict[str, list[str]]:
    """With the words that our table knows for each."""
    schema = llm_schema()
    found = dict(_walk(schema.configs["LlmArgs"], ""))
    for head, name in (("speculative_config", "speculative"), ("sparse_attention_config", "sparse_attention")):
        union = schema.unions[name]
        for word in union.members:
            found |= {f"{head}.{word}.{field}": [] for field in schema.union_fields(union, word)}
    return {path: words for path, words in found.items() if path != "model"}


def single_sets(paths: Mapping[str, list[str]]) -> Iterator[tuple[str, Args]]:
    """One field each, once with every value, once misspelt."""
    for path, words in paths.items():
        for value in (*VALUES, *words):
            yield path, at_path(path, value)
        yield path, at_path(misspelt(path), 1)


def at_path(path: str, value: Any) -> Args:
    head, _, rest = path.partition(".")
    if head not in UNIONS or not rest:
        return _nested(path, value)
    word, _, field = rest.partition(".")
    return {head: {UNIONS[head]: word, **NEEDS.get(word, {}), **_nested(field, value)}}


def misspelt(path: str) -> str:
    head, dot, name = path.rpartition(".")
    return f"{head}{dot}{name[1:]}{name[0]}q"


def _nested(path: str, value: Any) -> Args:
    head, _, rest = path.partition(".")
    return {head: _nested(rest, value) if rest else value}


def _walk(fields: Mapping[str, Field], prefix: str) -> Iterator[tuple[str, list[str]]]:
    for name, field in fields.items():
        yield f"{prefix}{name}", [word for word in field.choices if isinstance(word, str)]
        inner = named(field.kind, "config")
        if inner is not None:
            yield from _walk(llm_schema().configs[inner.target], f"{prefix}{name}.")
