"""What an operator wants to see of one model, taken out of a window: the data of `seekserve top`. Pure.

A number that the server does not publish, or for which nothing happened, is None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .reading import Histogram
from .window import Window, quantile

__all__ = ["ENDS", "TIMES", "Glance", "Percentiles", "glance_of"]

TIMES = {
    "time_to_first_token_seconds": "TTFT",
    "time_per_output_token_seconds": "TPOT",
    "request_duration_seconds": "E2E",
    "queue_time_seconds": "queued",
}
"""In the order in which they are shown."""
ENDS = ("finished", "refused", "expired", "cancelled", "failed", "routed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """In seconds."""

    p50: float
    p90: float
    p99: float
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    server: str
    model: str
    now_s: float
    recent_s: float
    """What rates are over."""
    window_s: float
    """What percentiles are over."""
    engine: str | None
    """Its kind."""
    queue: Mapping[str, float]
    """By class."""
    buckets: Mapping[str, float]
    """Waiting requests by prompt length."""
    intake: float | None
    joined: float | None
    """Requests that get the answer of an equal one."""
    routed: float | None
    """Requests that another model answers."""
    kept_streams: float | None
    """Resumable streams without a connection."""
    running: float | None
    max_running: float | None
    batch: float | None
    kv_blocks: float | None
    kv_used: float | None
    kv_reserved: float | None
    memory_pressure: float | None
    kv_reused_per_s: float | None
    hit_ratio: float | None
    pressure: float | None
    rung: float | None
    breaker: float | None
    bias: float | None
    step_s: float | None
    target_step_s: float | None
    credit_s: float | None
    arrived_per_s: float | None
    admitted_per_s: float | None
    ended_per_s: Mapping[str, float]
    """By terminal kind."""
    refused_per_s: Mapping[str, float]
    """By `class code reason`; only what was refused within the window."""
    prompt_tokens_per_s: float | None
    output_tokens_per_s: float | None
    times: Mapping[str, Mapping[str, Percentiles]]
    """TTFT, TPOT, E2E, queued -> class -> percentiles of the window."""
    times_since_start: Mapping[str, Mapping[str, Percentiles]]
    age_s: float | None
    """Of the numbers themselves."""
    loop_age_s: float | None
    silence_s: float | None
    policy_generation: float | None
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = _without_none(asdict(self))
        return body


def glance_of(recent: Window, wide: Window) -> Glance:
    """`recent`: for rates and state; `wide`: for percentiles, of the same model and as new."""
    now, engines = recent.now, recent.by("engine_info", "kind")
    return Glance(
        server=recent.server,
        model=recent.model,
        now_s=recent.now_s,
        recent_s=recent.seconds,
        window_s=wide.seconds,
        engine=next(iter(engines), None),
        queue=recent.by("queue_requests", "class"),
        buckets=dict(sorted(recent.by("queue_bucket_requests", "bucket").items(), key=lambda each: _first(each[0]))),
        intake=now("intake_requests"),
        joined=now("joined_requests"),
        routed=now("routed_requests"),
        kept_streams=now("kept_streams"),
        running=now("running_requests"),
        max_running=now("max_running_requests"),
        batch=now("engine_batch_requests"),
        kv_blocks=now("kv_blocks"),
        kv_used=now("kv_used_blocks"),
        kv_reserved=now("kv_reserved_blocks"),
        memory_pressure=now("memory_pressure_ratio"),
        kv_reused_per_s=recent.rate("kv_reused_blocks_total"),
        hit_ratio=_share(wide, "prefix_hits_total", "prefix_lookups_total"),
        pressure=now("pressure_ratio"),
        rung=now("rung"),
        breaker=now("breaker_state"),
        bias=now("step_bias_ratio"),
        step_s=recent.mean_observed("engine_step_seconds"),
        target_step_s=now("step_target_seconds"),
        credit_s=now("credit_seconds"),
        arrived_per_s=recent.rate("requests_offered_total"),
        admitted_per_s=recent.rate("requests_admitted_total"),
        ended_per_s=recent.rates("requests_ended_total", "terminal"),
        refused_per_s=_refused(recent),
        prompt_tokens_per_s=recent.rate("prompt_tokens_total"),
        output_tokens_per_s=recent.rate("output_tokens_total"),
        times=_times(wide, is_since_start=False),
        times_since_start=_times(wide, is_since_start=True),
        age_s=wide.numbers_age_s(),
        loop_age_s=now("engine_loop_age_seconds"),
        silence_s=now("stream_silence_seconds"),
        policy_generation=now("policy_generation"),
        gpus=recent.gpus[-1] if recent.gpus else {},
    )


def _times(window: Window, *, is_since_start: bool) -> dict[str, dict[str, Percentiles]]:
    out: dict[str, dict[str, Percentiles]] = {}
    for metric, name in TIMES.items():
        classes = sorted({own[0] for own in window.numbers[-1].histograms.get(metric, {})})
        for each in classes:
            found = (
                window.numbers[-1].histograms[metric].get((each,))
                if is_since_start
                else window.observed(metric, **{"class": each})
            )
            percentiles = None if found is None else _percentiles(found)
            if percentiles is not None:
                out.setdefault(name, {})[each] = percentiles
    return out


def _percentiles(histogram: Histogram) -> Percentiles | None:
    p50, p90, p99 = (quantile(histogram, part) for part in (0.5, 0.9, 0.99))
    if p50 is None or p90 is None or p99 is None:
        return None
    return Percentiles(p50=p50, p90=p90, p99=p99, count=histogram.count)


def _refused(window: Window) -> dict[str, float]:
    table = window.numbers[-1].values.get("requests_refused_total", {})
    found = {}
    for name, code, reason in sorted(table):
        rate = window.rate("requests_refused_total", **{"class": name, "code": code, "reason": reason})
        if rate:
            found[f"{name} {code} {reason}"] = rate
    return found


def _first(bucket: str) -> float:
    """Its lower edge in tokens, for the order: `4k-8k` is 4,000."""
    match = re.match(r"(\d+)(k?)", bucket)
    return math.inf if match is None else float(match[1]) * (1000.0 if match[2] else 1.0)


def _share(window: Window, part: str, whole: str) -> float | None:
    a, b = window.increase(part), window.increase(whole)
    return a / b if a is not None and b else None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return round(value, 6) if isinstance(value, float) else value
