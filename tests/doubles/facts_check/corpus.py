"""Argument sets for both sides: every known field with values of every kind, misspelt names, and members of unions.

Fields come from the double's tables and from ours together, so that neither side's omission hides the other's entry.
A name that neither side has in the version at hand is refused whatever it holds, and gets a few values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tests.doubles.double_tests.package import Package

from seekserve.trtllm.kinds import named
from seekserve.trtllm.schema import Field, Snapshot, llm_schema
from seekserve.trtllm.values import check_value

Args = dict[str, Any]
Takes = Callable[[Any], bool]
"""Whether a field by itself takes a value in any state that speaks for the version."""
VALUES: tuple[Any, ...] = (
    *(True, 0, 1, 8, -1, 0.5, 1.5, 8.0),
    *("auto", "x", "8", "[[0]]", "", None),
    *([], [1], [0], [0.5, 0.5], ["x"], {}, {"x": 1}, {1: 2}),
)
VALUES_OF_THE_ABSENT: tuple[Any, ...] = (1, "x", None, {})
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


def double_fields(package: Package, cls: str) -> dict[str, Takes]:
    """Every path of its tables; what is in no state of this version, or in the other root class only, takes nothing."""
    config, speculation = package.module("_double.config"), package.module("_double.args_speculation")
    classes, states = config.CLASSES, package.module("_double.profile").PROFILE.arg_states
    unions = {
        "speculative_config": speculation.SPECULATION,
        "sparse_attention_config": speculation.SPARSE,
        "kv_cache_compression_config": speculation.COMPRESSION,
    }
    below = {**CLASS_AT, **{f"{at}.{word}": name for at, members in unions.items() for word, name in members.items()}}

    def takes(name: str, key: str, value: Any) -> bool:
        field = classes[name].FIELDS[key]
        for state in states:
            try:
                if config.has(field.at, state):
                    field.kind(value, state)
                    return True
            except config.Refused:
                pass
        return False

    def fields(name: str, prefix: str = "") -> dict[str, Takes]:
        known = {key for state in states for key in config.field_names(classes[name], state)}
        return {
            f"{prefix}{key}": partial(takes, name, key) if key in known else _nothing for key in classes[name].FIELDS
        }

    roots = {**dict.fromkeys((*classes["TorchLlmArgs"].FIELDS, *classes["TrtLlmArgs"].FIELDS), _nothing), **fields(cls)}
    nested = {path: take for at, name in below.items() for path, take in fields(name, f"{at}.").items()}
    return roots | {
        path: take if roots[path.partition(".")[0]] is not _nothing else _nothing for path, take in nested.items()
    }


def our_fields(states: Sequence[Snapshot], owner: str) -> dict[str, tuple[Takes, list[str]]]:
    """Every path of our table, with the words that it knows."""

    def takes(field: Field, value: Any) -> bool:
        return any(not any(found.is_error for found in check_value(field, value, "", at)) for at in having(field))

    def having(field: Field) -> list[Snapshot]:
        return [at for at in states if at.has(field.present) and field.owner_in(at) in (None, owner)]

    def entry(field: Field) -> tuple[Takes, list[str]]:
        words = [word for word in field.choices if isinstance(word, str)]
        return (partial(takes, field) if having(field) else _nothing), words

    schema = llm_schema()
    found = {path: entry(field) for path, field in _walk(schema.configs["LlmArgs"], "")}
    for head, name in (("speculative_config", "speculative"), ("sparse_attention_config", "sparse_attention")):
        union = schema.unions[name]
        for word in union.members:
            fields = schema.union_fields(union, word)
            found |= {f"{head}.{word}.{key}": (entry(field)[0], []) for key, field in fields.items()}
    return found


def single_sets(package: Package, cls: str, states: Sequence[Snapshot], owner: str) -> Iterator[tuple[str, Args]]:
    """One field each, with every value that counts, and misspelt."""
    ours, theirs = our_fields(states, owner), double_fields(package, cls)
    for path in sorted({*ours, *theirs} - {"model"}):
        we_take, words = ours.get(path, (_nothing, []))
        they_take = theirs.get(path, _nothing)
        for value in _telling((*VALUES, *words), we_take, they_take):
            yield path, at_path(path, value)
        yield path, at_path(misspelt(path), 1)


def _telling(values: Iterable[Any], we_take: Takes, they_take: Takes) -> Iterator[Any]:
    """What neither field takes is refused in whatever set it is, so one value of each type tells."""
    if we_take is they_take is _nothing:
        yield from VALUES_OF_THE_ABSENT
        return
    seen = set()
    for value in values:
        if we_take(value) or they_take(value):
            yield value
        elif type(value) not in seen:
            seen.add(type(value))
            yield value


def _nothing(value: Any) -> bool:
    del value
    return False


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


def _walk(fields: Mapping[str, Field], prefix: str) -> Iterator[tuple[str, Field]]:
    for name, field in fields.items():
        yield f"{prefix}{name}", field
        inner = named(field.kind, "config")
        if inner is not None:
            yield from _walk(llm_schema().configs[inner.target], f"{prefix}{name}.")
