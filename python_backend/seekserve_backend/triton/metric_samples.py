"""The service's numbers as samples of the families in `contract.metric_names`. What is not known has no sample."""

from __future__ import annotations

from collections.abc import Iterator

from ..contract.metric_names import GATE_GAUGES, MILLISECONDS, PREFIX
from ..engines.port import EngineStats
from ..service import ServiceStats

__all__ = ["Sample", "books", "others"]

Sample = tuple[str, dict[str, str], float]
"""(family, labels of its own, value)"""


def books(stats: ServiceStats) -> list[Sample]:
    """All of one moment: the snapshot was taken under the scheduler's lock."""
    snap = stats.snapshot
    found: list[tuple[str, dict[str, str], float]] = [("requests_offered_total", {}, snap.offered)]
    found += [
        ("requests_ended_total", {"class": name, "terminal": kind}, n)
        for (name, kind), n in snap.ended_by_class.items()
    ]
    found += [("requests_admitted_total", {"class": name}, n) for name, n in snap.admitted_by_class.items()]
    found += [
        ("requests_refused_total", {"class": name, "code": code, "reason": why}, n)
        for (name, code, why), n in snap.refused_by_why.items()
    ]
    found += [("intake_requests", {}, snap.intake)]
    found += [("queue_requests", {"class": name}, n) for name, n in snap.queued_by_class.items()]
    found += [("running_requests", {}, snap.running)]
    return [(PREFIX + name, labels, value) for name, labels, value in found]


def others(stats: ServiceStats, *, instance: str, unix_time_s: float) -> list[Sample]:
    plain: dict[str, float] = {
        "kv_reserved_blocks": stats.snapshot.reserved_blocks,
        "policy_generation": stats.snapshot.policy_generation,
        "engine_restarts_total": stats.engine_restarts,
        "engine_step_requests_total": stats.totals.step_requests,
        "observations_dropped_total": stats.totals.dropped,
        "engine_loop_age_seconds": stats.engine_loop_age_s,
        "send_age_seconds": stats.send_age_s,
        "outbox_responses": stats.outbox_depth,
        "flush_timestamp_seconds": unix_time_s,
        **dict(_gate(stats)),
        **({} if stats.engine is None else _engine(stats.engine)),
    }
    if stats.stream_silence_s is not None:
        plain["stream_silence_seconds"] = stats.stream_silence_s
    if stats.looks_up_prefixes:
        plain |= {
            "prefix_lookups_total": stats.totals.prefix_lookups,
            "prefix_hits_total": stats.totals.prefix_hits,
            "prefix_hit_tokens_total": stats.totals.prefix_hit_tokens,
        }
    labelled: list[tuple[str, dict[str, str], float]] = [
        ("engine_info", {"kind": stats.engine_kind, "name": instance}, 1)
    ]
    labelled += [("queue_bucket_requests", {"bucket": b}, n) for b, n in stats.snapshot.queued_by_bucket.items()]
    labelled += [(name, {}, value) for name, value in plain.items()]
    return [(PREFIX + name, labels, value) for name, labels, value in labelled]


def _gate(stats: ServiceStats) -> Iterator[tuple[str, float]]:
    """What the policy's gate knows of itself; a policy without it leaves it out."""
    for name, value in stats.snapshot.gauges.items():
        yield GATE_GAUGES[name], value / 1000.0 if name in MILLISECONDS else value


def _engine(engine: EngineStats) -> dict[str, float]:
    out: dict[str, float] = {
        "kv_blocks": engine.kv_total_blocks,
        "kv_free_blocks": engine.kv_free_blocks,
        "kv_used_blocks": engine.kv_total_blocks - engine.kv_free_blocks,
        "prompt_tokens_total": engine.prompt_tokens_in,
        "output_tokens_total": engine.tokens_out,
    }
    if engine.steps:
        out["engine_batch_requests"] = engine.last_batch_size
    if engine.kv_reused_blocks is not None:
        out["kv_reused_blocks_total"] = engine.kv_reused_blocks
    if engine.queued is not None:
        out["engine_queue_requests"] = engine.queued
    return out
