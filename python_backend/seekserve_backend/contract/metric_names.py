"""Every metric family of the backend: its name, kind, labels, unit and what it says.

The backend publishes from this table, the toolkit reads, draws and documents by it. Names follow Prometheus: base units
(seconds), `_total` on counters and on nothing else. Each sample also carries the labels of `COMMON_LABELS`. A number
that is not known has no sample: absent is absent, never 0.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = [
    "BOOKS",
    "COMMON_LABELS",
    "FAMILIES",
    "FAMILY",
    "GATE_GAUGES",
    "MILLISECONDS",
    "PREFIX",
    "UNKNOWN_CLASS",
    "Family",
    "Kind",
]

PREFIX = "seekserve_"

COMMON_LABELS = ("model", "process")
"""`process` is the id of the stub process: two processes of one model (instances, or a swap's old and new one) never
write to one series. Sums over a model are `sum by (model)`."""

UNKNOWN_CLASS = "unknown"
"""The class of a request that was refused before its class was known to exist."""


class Kind(str, enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    kind: Kind
    unit: str
    """Of the value; `state` and `info` for what is no quantity."""
    help: str
    labels: tuple[str, ...] = ()
    """Beside COMMON_LABELS."""
    buckets: tuple[float, ...] = ()
    """Upper bounds, for histograms."""


_WAITS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_FORMATION_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_LENGTHS_TOKENS = (16.0, 64.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0)


def _counter(name: str, unit: str, help: str, *labels: str) -> Family:
    return Family(name=PREFIX + name, kind=Kind.COUNTER, unit=unit, help=help, labels=labels)


def _gauge(name: str, unit: str, help: str, *labels: str) -> Family:
    return Family(name=PREFIX + name, kind=Kind.GAUGE, unit=unit, help=help, labels=labels)


def _histogram(name: str, unit: str, help: str, buckets: tuple[float, ...], *labels: str) -> Family:
    return Family(name=PREFIX + name, kind=Kind.HISTOGRAM, unit=unit, help=help, labels=labels, buckets=buckets)


BOOKS = (
    _counter("flushes_total", "flushes", "Times that these numbers were put here; see flushes_begun"),
    _counter("requests_offered_total", "requests", "Requests that arrived"),
    _counter(
        "requests_ended_total",
        "requests",
        "Requests that ended, by terminal kind: finished, cancelled, expired, refused, failed, routed",
        "class",
        "terminal",
    ),
    _counter("requests_admitted_total", "requests", "Requests that were let into the queue", "class"),
    _counter(
        "requests_refused_total", "requests", "Requests refused, by error code and reason", "class", "code", "reason"
    ),
    _gauge("intake_requests", "requests", "Requests being tokenised or waiting for it"),
    _gauge("queue_requests", "requests", "Waiting requests by class", "class"),
    _gauge("running_requests", "requests", "Requests in the engine"),
    _gauge("joined_requests", "requests", "Requests that receive the answer of an equal one, or of a kept stream"),
    _gauge("routed_requests", "requests", "Requests that another model is answering"),
    _gauge("flushes_begun", "flushes", "Flushes begun; a scrape where this is flushes_total is of one moment"),
)
"""The books: offered = intake + queue + running + joined + routed + the sum of ended, in every scrape of one moment.

In this order they are made. Triton shows counters before gauges, each in the order of making, so `flushes_total` is
read before all others of these and `flushes_begun` after them: where the two agree nothing was written in between."""

_SCHEDULER = (
    _gauge("queue_bucket_requests", "requests", "Waiting requests by prompt length", "bucket"),
    _gauge("pressure_ratio", "ratio", "Urgent work asked for over what fits the targets; above 1 some is refused"),
    _gauge("rung", "state", "Rung of the pressure ladder; 0 is normal"),
    _gauge("breaker_state", "state", "0 closed, 0.5 half open, 1 open"),
    _counter("breaker_openings_total", "openings", "Times the breaker opened"),
    _gauge("price_seconds", "seconds", "Engine time that the prompts which arrive cost, decayed mean"),
    _gauge("credit_seconds", "seconds", "Engine time that may be spent on prompts now"),
    _gauge("step_bias_ratio", "ratio", "Measured step time over the step model's"),
    _gauge("step_mean_seconds", "seconds", "Decayed mean of measured engine steps"),
    _gauge("step_target_seconds", "seconds", "Step time that the pace aims at"),
    _gauge("prefill_share_ratio", "ratio", "Part of the engine's time that prompts may take"),
    _gauge("expected_kv_tokens", "tokens", "KV tokens that running requests are expected to come to"),
    _gauge("output_length_error_tokens", "tokens", "Mean error of the expected answer length"),
    _gauge("max_running_requests", "requests", "Requests that may run at once now"),
    _gauge("policy_generation", "state", "Accepted policy reloads"),
)

_REQUESTS = (
    _histogram("time_to_first_token_seconds", "seconds", "From arrival to first token (TTFT)", _WAITS_S, "class"),
    _histogram(
        "time_per_output_token_seconds", "seconds", "Mean time of a token after the first (TPOT)", _TOKEN_S, "class"
    ),
    _histogram("request_duration_seconds", "seconds", "From arrival to last token of finished ones", _WAITS_S, "class"),
    _histogram("queue_time_seconds", "seconds", "From arrival to release", _WAITS_S, "class"),
    _histogram(
        "batch_formation_seconds",
        "seconds",
        "From the scheduling round that released a request until the engine had it",
        _FORMATION_S,
        "class",
    ),
    _histogram("request_prompt_tokens", "tokens", "Prompt length of admitted requests", _LENGTHS_TOKENS, "class"),
    _histogram("request_output_tokens", "tokens", "Answer length of finished requests", _LENGTHS_TOKENS, "class"),
    _counter("prefix_lookups_total", "requests", "Admitted prompts looked up among cached beginnings"),
    _counter("prefix_hits_total", "requests", "Of these, prompts whose beginning is believed cached"),
    _counter("prefix_hit_tokens_total", "tokens", "Prompt tokens believed cached on admission"),
)

_ENGINE = (
    _gauge("engine_info", "info", "1, with the kind of the engine and the name of Triton's instance", "kind", "name"),
    _histogram("engine_step_seconds", "seconds", "Duration of engine steps", _TOKEN_S),
    _counter("engine_step_requests_total", "requests", "Batch sizes of all steps, added up"),
    _gauge("engine_batch_requests", "requests", "Requests in the last engine step"),
    _counter("prompt_tokens_total", "tokens", "Prompt tokens processed (prefill)"),
    _counter("output_tokens_total", "tokens", "Tokens produced"),
    _counter("engine_restarts_total", "restarts", "Times the engine was made anew after a failure"),
    _gauge("engine_queue_requests", "requests", "Requests that the engine holds but has not scheduled, or paused"),
    _gauge("kv_blocks", "blocks", "KV blocks of the engine"),
    _gauge("kv_used_blocks", "blocks", "KV blocks in use"),
    _gauge("kv_free_blocks", "blocks", "KV blocks not in use"),
    _gauge("kv_reserved_blocks", "blocks", "KV blocks that running requests can come to hold"),
    _counter("kv_reused_blocks_total", "blocks", "KV blocks that requests found in the cache"),
)

_GUIDES = (
    _gauge("memory_pressure_ratio", "ratio", "(Used + half of reserved KV blocks) over all, x (1 + 0.3 fragmentation)"),
    _gauge("kv_fragmentation_ratio", "ratio", "Part of the room in taken KV blocks that holds no token"),
    _gauge("batch_efficiency_ratio", "ratio", "Mean length of running requests over the longest"),
    _gauge("batch_formation_mean_seconds", "seconds", "Decayed mean time from being let in to the first engine step"),
)
"""What operators' guides speak of."""

_SHARING = (
    _counter("repeat_hits_total", "requests", "Requests answered from the repeat cache"),
    _counter("repeat_joins_total", "requests", "Requests that joined an equal one in flight"),
    _gauge("repeat_results", "results", "Results in the repeat cache"),
    _gauge("repeat_bytes", "bytes", "Size of the repeat cache"),
    _gauge("kept_streams", "streams", "Resumable streams kept without a connection, or after their end"),
    _gauge("kept_stream_bytes", "bytes", "Size of the kept streams"),
    _counter("streams_resumed_total", "streams", "Times a client came back to its stream"),
    _counter("streams_dropped_total", "streams", "Kept streams that nobody came back for"),
    _counter("routes_started_total", "requests", "Requests handed on to another model"),
    _counter("routes_taken_back_total", "requests", "Of those, served here: the other model did not take them"),
)

_HEALTH = (
    _gauge("flush_timestamp_seconds", "seconds", "Unix time of the last flush; stands still when the process is dead"),
    _gauge("engine_loop_age_seconds", "seconds", "Time since the engine loop last came round"),
    _gauge("send_age_seconds", "seconds", "Age of the oldest send that has not returned"),
    _gauge("stream_silence_seconds", "seconds", "Longest time since the last token of a running request"),
    _gauge("outbox_responses", "responses", "Responses waiting to be sent"),
    _counter("observations_dropped_total", "observations", "Histogram values dropped because too many came"),
)

FAMILIES = BOOKS + _SCHEDULER + _GUIDES + _REQUESTS + _SHARING + _ENGINE + _HEALTH

FAMILY = {family.name: family for family in FAMILIES}

GATE_GAUGES = {
    "pressure": "pressure_ratio",
    "rung": "rung",
    "breaker": "breaker_state",
    "price_ms": "price_seconds",
    "credit_ms": "credit_seconds",
    "bias": "step_bias_ratio",
    "step_ms": "step_mean_seconds",
    "target_step_ms": "step_target_seconds",
    "prefill_share": "prefill_share_ratio",
    "expected_kv_tokens": "expected_kv_tokens",
    "output_error_tokens": "output_length_error_tokens",
    "max_running": "max_running_requests",
    "breaker_openings": "breaker_openings_total",
    "memory_pressure": "memory_pressure_ratio",
    "kv_fragmentation": "kv_fragmentation_ratio",
    "batch_efficiency": "batch_efficiency_ratio",
    "batch_formation_ms": "batch_formation_mean_seconds",
    "routes_started": "routes_started_total",
    "routes_taken_back": "routes_taken_back_total",
    "repeat_hits": "repeat_hits_total",
    "repeat_joins": "repeat_joins_total",
    "repeat_results": "repeat_results",
    "repeat_bytes": "repeat_bytes",
    "kept_streams": "kept_streams",
    "kept_stream_bytes": "kept_stream_bytes",
    "resumed_streams": "streams_resumed_total",
    "dropped_streams": "streams_dropped_total",
}
"""What the core calls its gauges -> family without prefix. Those in `MILLISECONDS` are divided by 1000."""

MILLISECONDS = frozenset(name for name in GATE_GAUGES if name.endswith("_ms"))
