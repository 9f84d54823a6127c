"""Puts the service's numbers on Triton's metrics endpoint, once a second, off the token path.

One update costs about 0.1 ms of inter-process call, which is why nothing here runs per token. A number the service does
not have is left out, never shown as 0.
"""

from __future__ import annotations

from typing import Any

from ..service import ServiceStats

__all__ = ["Metrics", "samples"]

_HELP = {
    "seekserve_engine_info": "1, with the kind of the engine",
    "seekserve_queue_requests": "Waiting requests by class",
    "seekserve_bucket_requests": "Waiting requests by prompt length bucket",
    "seekserve_intake_requests": "Requests being tokenised or waiting for it",
    "seekserve_running_requests": "Requests in the engine",
    "seekserve_joined_requests": "Requests that receive the answer of an equal one, or of a kept stream",
    "seekserve_repeat_hits": "Requests answered from the repeat cache since the start",
    "seekserve_repeat_joins": "Requests that joined an equal one in flight since the start",
    "seekserve_repeat_results": "Results in the repeat cache",
    "seekserve_repeat_bytes": "Bytes of the repeat cache",
    "seekserve_kept_streams": "Resumable streams kept without a connection, or after their end",
    "seekserve_kept_stream_bytes": "Bytes of the kept streams",
    "seekserve_resumed_streams": "Times a client came back to its stream since the start",
    "seekserve_dropped_streams": "Kept streams that nobody came back for since the start",
    "seekserve_routed_requests": "Requests that another model is answering",
    "seekserve_routes_started": "Requests handed on to another model since the start",
    "seekserve_routes_taken_back": "Of those, served here after all: the other model did not take them",
    "seekserve_reserved_blocks": "KV blocks reserved by running requests",
    "seekserve_offered_requests": "Requests that arrived since the start",
    "seekserve_requests_total": "Requests that ended, by terminal kind",
    "seekserve_refused_requests": "Requests refused, by code",
    "seekserve_kv_used_blocks": "KV blocks in use",
    "seekserve_kv_total_blocks": "KV blocks of the engine",
    "seekserve_engine_step_ms": "Duration of the last engine step",
    "seekserve_engine_batch_size": "Requests in the last engine step",
    "seekserve_engine_restarts": "Times the engine was made anew after a failure",
    "seekserve_tokens_out": "Tokens produced since the start",
    "seekserve_prompt_tokens_in": "Prompt tokens processed since the start",
    "seekserve_outbox_responses": "Responses waiting to be sent",
    "seekserve_policy_generation": "Accepted policy reloads",
    "seekserve_pressure": "Urgent work asked for over what fits the targets; above 1 some is refused",
    "seekserve_rung": "Rung of the pressure ladder, 0 is normal",
    "seekserve_credit_ms": "Engine time that may be spent on prompts now",
    "seekserve_bias": "Measured step time over the step model's",
    "seekserve_step_ms": "Decayed mean of measured engine steps",
    "seekserve_target_step_ms": "Step time that the pace aims at",
    "seekserve_prefill_share": "Part of the engine's time that prompts may take",
    "seekserve_expected_kv_tokens": "KV tokens that running requests are expected to come to",
    "seekserve_output_error_tokens": "Mean error of the expected answer length",
    "seekserve_max_running": "Requests that may run at once now",
    "seekserve_memory_pressure": "(active + half of reserved KV blocks) over all, times 1 + 0.3 x fragmentation",
    "seekserve_kv_fragmentation": "Part of the room in taken KV blocks that holds no token",
    "seekserve_batch_efficiency": "Mean length of running requests over the longest: a padded batch's filled part",
    "seekserve_batch_formation_ms": "Decayed mean time from a request being let in to its first engine step",
    "seekserve_breaker": "0 closed, 0.5 half open, 1 open",
    "seekserve_breaker_openings": "Times the breaker opened",
    "seekserve_engine_loop_age_seconds": "Time since the engine loop last came round",
}


def samples(stats: ServiceStats) -> list[tuple[str, dict[str, str], float]]:
    """(family, labels, value) of everything known at this moment."""
    snap = stats.snapshot
    out: list[tuple[str, dict[str, str], float]] = [("seekserve_engine_info", {"kind": stats.engine_kind}, 1)]
    out += [("seekserve_queue_requests", {"class": c}, n) for c, n in snap.queued_by_class.items()]
    out += [("seekserve_bucket_requests", {"bucket": b}, n) for b, n in snap.queued_by_bucket.items()]
    out += [("seekserve_requests_total", {"terminal": t}, n) for t, n in snap.terminals.items()]
    out += [("seekserve_refused_requests", {"code": c}, n) for c, n in snap.refused_by_code.items()]
    plain: dict[str, float] = {
        "seekserve_intake_requests": snap.intake,
        "seekserve_running_requests": snap.running,
        "seekserve_joined_requests": snap.joined,
        "seekserve_routed_requests": snap.routed,
        "seekserve_reserved_blocks": snap.reserved_blocks,
        "seekserve_offered_requests": snap.offered,
        "seekserve_policy_generation": snap.policy_generation,
        "seekserve_outbox_responses": stats.outbox_depth,
        "seekserve_engine_restarts": stats.engine_restarts,
        "seekserve_engine_loop_age_seconds": stats.engine_loop_age_s,
    }
    if stats.engine is not None:
        engine = stats.engine
        plain |= {
            "seekserve_kv_used_blocks": engine.kv_total_blocks - engine.kv_free_blocks,
            "seekserve_kv_total_blocks": engine.kv_total_blocks,
            "seekserve_engine_step_ms": engine.last_step_ms,
            "seekserve_engine_batch_size": engine.last_batch_size,
            "seekserve_tokens_out": engine.tokens_out,
            "seekserve_prompt_tokens_in": engine.prompt_tokens_in,
        }
    # What the policy's gate knows of itself; a policy without it leaves it out.
    plain |= {f"seekserve_{name}": value for name, value in {**snap.gauges, **stats.sharing}.items()}
    return out + [(name, {}, value) for name, value in plain.items()]


class Metrics:
    """Creates families and series as they first appear; sets only what changed."""

    def __init__(self, utils: Any, model: str) -> None:
        self._utils = utils
        self._model = model
        self._families: dict[str, Any] = {}
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
        self._last: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def flush(self, stats: ServiceStats) -> None:
        for name, labels, value in samples(stats):
            key = (name, tuple(labels.items()))
            if self._last.get(key) == value:
                continue
            if key not in self._series:
                self._series[key] = self._new_series(name, labels)
            self._series[key].set(value)
            self._last[key] = value

    def _new_series(self, name: str, labels: dict[str, str]) -> Any:
        utils = self._utils
        if name not in self._families:
            self._families[name] = utils.MetricFamily(name=name, description=_HELP[name], kind=utils.MetricFamily.GAUGE)
        return self._families[name].Metric(labels={"model": self._model, **labels})
