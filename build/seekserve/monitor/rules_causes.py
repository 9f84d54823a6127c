"""Causes that more than one tree leads to: an engine slower than its model, a full cache, faults of the GPU. Pure."""

from __future__ import annotations

from .tree import Evidence, Kind, Leaf
from .view import View
from .window import quantile
from .words import count, percent, rate, ratio, seconds

__all__ = [
    "BREAKER",
    "CACHE_COLD",
    "HICCUPS",
    "KV_FULL",
    "KV_OVERRESERVED",
    "LONGER_PROMPTS",
    "OVERLOAD",
    "RAMPING",
    "SLOTS_FULL",
    "SLOW_ENGINE",
    "THROTTLED",
    "beyond",
]

_SLOW_BIAS = 1.3
_FULL = 0.9
_BUSY_SLOTS = 0.95
_LONGER = 1.5
# Bits of NVML's clocks-event reasons that mean heat, power brake or hardware, not an idle clock or a user's limit.
_THROTTLE_BITS = {0x8: "hardware", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}


def beyond(value: float | None, bound: float, text: str, *more: str) -> Evidence | None:
    """Evidence where `value` has reached `bound`; `text` tells of it."""
    if value is None or value < bound:
        return None
    return Evidence(value / bound if bound > 0.0 else 1.0 + value, (text, *more))


def _slow_engine(view: View) -> Evidence | None:
    bias = view.window.mean("step_bias_ratio")
    return beyond(
        bias,
        _SLOW_BIAS,
        f"steps take {ratio(bias)} times what the step model says (bound {_SLOW_BIAS:g})",
        f"step mean {seconds(view.window.now('step_mean_seconds'))}",
    )


def _throttled(view: View) -> Evidence | None:
    found = []
    for gpu, value in view.window.gpu("throttle_reasons").items():
        why = [text for bit, text in _THROTTLE_BITS.items() if int(value) & bit]
        if why:
            celsius = view.window.gpu("temperature_c").get(gpu)
            heat = "" if celsius is None else f", {celsius:.0f} C"
            found.append(f"GPU {gpu} is throttled: {', '.join(why)}{heat}")
    return Evidence(2.0 + len(found), tuple(found)) if found else None


def _kv_full(view: View) -> Evidence | None:
    used, reserved = view.kv_share("kv_used_blocks"), view.kv_share("kv_reserved_blocks")
    most = max((share for share in (used, reserved) if share is not None), default=None)
    if view.queued() < 1.0 or (used or 0.0) < 0.5:
        return None
    return beyond(
        most,
        _FULL,
        f"KV cache {percent(used)} used, {percent(reserved)} reserved (bound {percent(_FULL)})",
        f"{count(view.queued())} requests wait, memory pressure {ratio(view.window.now('memory_pressure_ratio'))}",
    )


def _kv_overreserved(view: View) -> Evidence | None:
    used, reserved = view.kv_share("kv_used_blocks"), view.kv_share("kv_reserved_blocks")
    if view.queued() < 1.0 or used is None or used >= 0.5:
        return None
    return beyond(
        reserved,
        _FULL,
        f"KV cache {percent(reserved)} reserved but {percent(used)} used",
        f"expected answers are off by {count(view.window.now('output_length_error_tokens'))} tokens",
    )


def _slots_full(view: View) -> Evidence | None:
    running, most = view.while_waiting("running_requests"), view.while_waiting("max_running_requests")
    if view.queued() < 1.0 or not running or not most or _is_ramping(view):
        return None
    text = f"{count(running)} of {count(most)} places taken, {count(view.queued())} requests wait"
    return beyond(running / most, _BUSY_SLOTS, text)


def _ramping(view: View) -> Evidence | None:
    running, most = view.while_waiting("running_requests"), view.while_waiting("max_running_requests")
    if view.queued() < 1.0 or not running or not most or not _is_ramping(view):
        return None
    places = _places(view)
    text = f"places rise from {count(min(places))} to {count(places[-1])}, {count(view.queued())} requests wait"
    return beyond(running / most, 0.8, text)


def _is_ramping(view: View) -> bool:
    places = _places(view)
    return bool(places) and places[-1] > min(places)


def _places(view: View) -> list[float]:
    found = (each.values.get("max_running_requests") for each in view.window.numbers)
    return [sum(table.values()) for table in found if table]


def _overload(view: View) -> Evidence | None:
    peak, queued = view.window.peak("pressure_ratio"), view.queued()
    if peak is not None:
        text = f"pressure up to {ratio(peak)}, {ratio(view.window.mean('pressure_ratio'))} in the mean (bound 1)"
        return beyond(peak, 1.0, text, f"{count(queued)} requests wait, rung {count(view.window.peak('rung'))}")
    # A policy without a gate knows no pressure: then it shows in a queue that is longer than the batch.
    running = view.window.mean("running_requests") or 0.0
    arrive, end = view.window.rate("requests_offered_total"), view.window.rate("requests_ended_total")
    text = f"{count(queued)} requests wait beside {count(running)} that run; {rate(arrive)}/s arrive, {rate(end)}/s end"
    return Evidence(1.0, (text,)) if queued >= max(5.0, running) else None


def _hiccups(view: View) -> Evidence | None:
    steps = view.window.observed("engine_step_seconds")
    if steps is None or steps.count < 20.0:
        return None
    middle, bound = quantile(steps, 0.5) or 0.0, max(1.0, 10.0 * (quantile(steps, 0.5) or 0.0))
    below = max((n for b, n in zip(steps.bounds, steps.counts, strict=True) if b <= bound), default=steps.count)
    long = steps.count - below
    text = f"{count(long)} of {count(steps.count)} steps took more than {seconds(bound)}, half under {seconds(middle)}"
    return beyond(long, 1.0, text)


def _breaker(view: View) -> Evidence | None:
    state, openings = view.window.peak("breaker_state"), view.window.increase("breaker_openings_total")
    now = view.window.now("breaker_state")
    if not state and not openings:
        return None
    said = "closed" if not now else "half open" if now < 1.0 else "open"
    return Evidence(3.0 + (openings or 0.0), (f"breaker {said}, opened {count(openings)} times in this window",))


def _longer_prompts(view: View) -> Evidence | None:
    now, usual = view.window.mean_observed("request_prompt_tokens"), view.usual_mean("request_prompt_tokens")
    if now is None or not usual:
        return None
    text = f"prompts have {count(now)} tokens where {count(usual)} were usual"
    return beyond(now / usual, _LONGER, text)


def _cache_cold(view: View) -> Evidence | None:
    now, usual = view.hit_ratio(), view.hit_ratio(is_usual=True)
    if now is None or usual is None or usual < 0.1 or now > 0.5 * usual:
        return None
    text = f"{percent(now)} of prompts begin with something cached where {percent(usual)} did"
    return Evidence(min(usual / max(now, 0.01), 10.0), (text,))


THROTTLED = Leaf(
    id="gpu-throttled",
    kind=Kind.FAULT,
    what="A GPU is held back by heat, power or hardware.",
    change="Look at cooling and power (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER); move work off this node until "
    "it is gone. The scheduler has already slowed down to what the GPU gives.",
    look=_throttled,
)
SLOW_ENGINE = Leaf(
    id="slow-engine",
    kind=Kind.FAULT,
    what="The engine is slower than its step model says.",
    change="If it came suddenly: another process on the GPUs, clocks, a degraded link (`seekserve collect` has the "
    "topology and the kernel's log). If it was always so: measure the step model again and build the bundle with it. "
    "`seekserve diagnose --profile DIR` writes scripts that show where a step's time goes.",
    look=_slow_engine,
)
KV_FULL = Leaf(
    id="kv-full",
    kind=Kind.OVERLOAD,
    what="The KV cache is full, and requests wait for room in it.",
    change="Lower the policy's default and largest max_tokens, route long prompts elsewhere, or plan more cache: FP8 "
    "KV, a larger kv fraction, more GPUs or replicas (`seekserve plan` says what each gives).",
    look=_kv_full,
)
KV_OVERRESERVED = Leaf(
    id="kv-overreserved",
    kind=Kind.WASTE,
    what="Room in the KV cache is reserved for answers that do not come to it.",
    change="Clients ask for more max_tokens than they use: cap it in the policy per class, or let the policy reserve "
    "by expected length (`kind: paced`).",
    look=_kv_overreserved,
)
SLOTS_FULL = Leaf(
    id="slots-full",
    kind=Kind.OVERLOAD,
    what="Every place in the batch is taken.",
    change="A larger max_batch_size if the step target allows it (`seekserve plan`), or another replica.",
    look=_slots_full,
)
RAMPING = Leaf(
    id="ramping",
    kind=Kind.NOTE,
    what="The server has just started and still raises how many requests may run.",
    change="Nothing, it doubles by itself; send traffic to it later or more slowly after a start.",
    look=_ramping,
)
OVERLOAD = Leaf(
    id="overload",
    kind=Kind.OVERLOAD,
    what="More urgent work arrives than the engine can do within its targets.",
    change="Add a replica or move offline work elsewhere; refusals carry a time to come back, so make clients honour "
    "it. To take more at the price of slower answers, loosen the targets in the policy.",
    look=_overload,
)
BREAKER = Leaf(
    id="breaker-open",
    kind=Kind.FAULT,
    what="The breaker opened because the engine failed requests.",
    change="Read the first failure in the server's log (`seekserve collect` gathers it); the breaker closes by itself "
    "when probes succeed.",
    look=_breaker,
)
LONGER_PROMPTS = Leaf(
    id="longer-prompts",
    kind=Kind.NOTE,
    what="Prompts have become longer.",
    change="Find out which clients changed (by class and tenant). If it stays: plan again with these lengths, and give "
    "long prompts a class or replicas of their own.",
    look=_longer_prompts,
)
CACHE_COLD = Leaf(
    id="cache-cold",
    kind=Kind.WASTE,
    what="Fewer prompts begin with something that is cached.",
    change="Look for a changed system prompt or a timestamp at its start, a router that is not prefix-aware, or a "
    "restart that emptied the cache.",
    look=_cache_cold,
)
HICCUPS = Leaf(
    id="step-hiccups",
    kind=Kind.FAULT,
    what="Some steps take many times as long as the others.",
    change="Look for a process that shares the GPUs or the CPUs, page-ins, or long prompts without chunking; "
    "`seekserve diagnose --profile DIR` writes an nsys script that shows the gap.",
    look=_hiccups,
)
