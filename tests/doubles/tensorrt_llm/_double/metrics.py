"""Per-request performance metrics: durations of a steady clock, never wall time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from .work import Work

__all__ = ["Metrics", "metrics_of"]

_WORDS = {"END_ID": "stop", "STOP_WORDS": "stop", "LENGTH": "length", "CANCELLED": "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    perf: Any
    seconds: dict[str, Any]


def metrics_of(work: Work, finish: str | None, iteration: int, now: float) -> Metrics:
    holding = work.holding
    reused, missed = (holding.reused, holding.missed) if holding is not None else (0, 0)
    allocated = holding.allocated if holding is not None else 0
    perf = SimpleNamespace(
        timing_metrics=SimpleNamespace(
            arrival_time=timedelta(seconds=work.arrived_at),
            first_scheduled_time=timedelta(seconds=work.started_at or 0),
            first_token_time=timedelta(seconds=work.first_token_at or 0),
            last_token_time=timedelta(seconds=now),
            kv_cache_transfer_start=timedelta(0),
            kv_cache_transfer_end=timedelta(0),
            kv_cache_size=0,
        ),
        kv_cache_metrics=SimpleNamespace(
            num_total_allocated_blocks=allocated,
            num_new_allocated_blocks=allocated,
            num_reused_blocks=reused,
            num_missed_blocks=missed,
            kv_cache_hit_rate=reused / (reused + missed) if reused + missed else 0.0,
        ),
        speculative_decoding=SimpleNamespace(acceptance_rate=0.0, total_accepted_draft_tokens=0, total_draft_tokens=0),
        first_iter=work.first_iteration,
        last_iter=iteration,
        iter=iteration,
    )
    return Metrics(perf=perf, seconds=_seconds(work, finish, now))


def _seconds(work: Work, finish: str | None, now: float) -> dict[str, Any]:
    length = len(work.sequences[0].token_ids)
    out: dict[str, Any] = {"e2e": now - work.arrived_at}
    if work.started_at is not None:
        out["request_queue_time"] = work.started_at - work.arrived_at
    if work.first_token_at is not None:
        out["ttft"] = work.first_token_at - work.arrived_at
        if length > 1 and work.n_sequences == 1:
            out["tpot"] = (now - work.first_token_at) / (length - 1)
    out = {key: value for key, value in out.items() if value > 0}
    if finish is not None:
        out["finished_reason"] = _WORDS[finish]
    return out
