"""Nested configuration classes that snapshot B added."""

from __future__ import annotations

import itertools
import re

from .config import MISSING, Field, config, define
from .kinds import Refused, boolean, list_of, map_of, number, opt, text, word

__all__: list[str] = []

INT, FLOAT = number(), number(whole=False)
NATURAL, POSITIVE = number(low=0), number(low=1)
_BYTES = re.compile(r"\s*(\d+)\s*([kmgt]i?b|b)?\s*\Z", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _bytes(value: object, at: str) -> object:
    if not isinstance(value, str):
        return NATURAL(value, at)
    match = _BYTES.match(value)
    if match is None:
        raise Refused(f"{value!r} is no size such as 512MB or 1GiB")
    unit = (match.group(2) or "").lower().rstrip("b").rstrip("i")
    return int(match.group(1)) * 1024 ** _POWERS[unit]


def _bucket(value: object, at: str) -> object:
    pair = list_of(POSITIVE)(value, at)
    if len(pair) != 2 or pair[0] < pair[1]:
        raise Refused(f"{value!r} is no pair of tokens and contexts")
    return tuple(pair)


def _rising(value: object, at: str) -> object:
    edges = list_of(FLOAT, least=1)(value, at)
    if any(low >= high for low, high in itertools.pairwise(edges)):
        raise Refused("bucket boundaries must rise")
    return edges


define(
    "MultimodalEncoderCudaGraphConfig",
    fields={
        "buckets": Field(list_of(_bucket, least=1), MISSING, "B"),
        "enable_padding": Field(boolean, True, "B"),
        "warmup_steps": Field(POSITIVE, 2, "B"),
        "enable_replay_stats": Field(boolean, False, "B"),
    },
)
define(
    "MultimodalConfig",
    fields={
        "encoder_cuda_graph": Field(opt(map_of(text, config("MultimodalEncoderCudaGraphConfig"))), at="B"),
        "encoder_side_stream_max_ahead": Field(NATURAL, 0, "B"),
        "encoder_cache_max_bytes": Field(_bytes, 134_217_728, "B"),
        "encoder_scheduling_policy": Field(word(dict.fromkeys(("DISABLED", "DEFAULT", "EAGER"), "B")), "DEFAULT", "B"),
        "video_pruning_rate": Field(opt(number(whole=False, low=0, high=1)), at="B"),
    },
)
define(
    "DwdpConfig",
    fields={
        "dwdp_size": Field(INT, 1, "B"),
        "num_groups": Field(INT, 1, "B"),
        "num_experts_per_worker": Field(INT, 0, "B"),
        "num_prefetch_experts": Field(INT, 0, "B"),
        "contention_opt": Field(boolean, False, "B"),
    },
)
_HISTOGRAMS = (
    "e2e_request_latency_buckets",
    "time_to_first_token_buckets",
    "time_per_output_token_buckets",
    "request_queue_time_buckets",
    "request_prefill_time_buckets",
    "request_decode_time_buckets",
    "request_inference_time_buckets",
)
define("PrometheusMetricsConfig", fields={name: Field(opt(_rising), at="B") for name in _HISTOGRAMS})
_MEMORY = (
    "sampler",
    "drafter",
    "guided_decoder",
    "spec_resource_manager",
    "_no_capture_init_kv_cache",
    "_no_capture_init_extra_resources",
    "model_extra",
    "executor_extra",
    "kv_cache",
    "model",
    "draft_model",
    "model_weights",
    "draft_model_weights",
)
define(
    "SleepConfig",
    fields={
        "restore_modes": Field(map_of(word(_MEMORY), word(("NONE", "MEMSET", "CPU", "PINNED"))), dict, "B"),
    },
)
define(
    "AgentTreeConfig",
    fields={
        "agent_percentage": Field(FLOAT, 0.0, "B"),
        "agent_types": Field(opt(list_of(text)), at="B"),
        "agent_inflight_seq_num": Field(INT, 2**31 - 1, "B"),
    },
)
define(
    "ReorderRequestPolicyConfig",
    fields={
        "policy_name": Field(opt(word({"AgentTree": "B"})), at="B"),
        "policy_args": Field(config("AgentTreeConfig"), dict, "B"),
    },
)
define(
    "ModelExpressConfig",
    fields={
        "server_url": Field(opt(text), at="B"),
        "server_query_timeout_s": Field(opt(NATURAL), at="B"),
        "preshard_strategy": Field(word({"per_module": "B"}), "per_module", "B"),
    },
)
define(
    "GmsConfig",
    fields={
        "socket_path": Field(opt(text), at="B"),
        "mode": Field(word(dict.fromkeys(("auto", "rw", "ro"), "B")), "auto", "B"),
        "tag": Field(text, "weights", "B"),
    },
)
_CONTEXTS = ("unknown", "llm_class", "cli_serve", "cli_bench", "cli_eval", "disaggregated")
define(
    "TelemetryConfig",
    fields={
        "disabled": Field(boolean, False, "B"),
        "usage_context": Field(word(dict.fromkeys(_CONTEXTS, "B")), "unknown", "B"),
    },
)
