"""The tree of falling throughput: less arrives, more is refused or lost, or the engine gets less done. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .rules_causes import (
    CACHE_COLD,
    KV_FULL,
    KV_OVERRESERVED,
    LONGER_PROMPTS,
    RAMPING,
    SLOW_ENGINE,
    THROTTLED,
    beyond,
)
from .tree import Branch, Evidence, Kind, Leaf
from .view import View
from .words import count, percent, rate, seconds

__all__ = ["THROUGHPUT"]

_FALLEN = 0.7
_REFUSED, _FAILED, _EXPIRED, _CANCELLED = 0.02, 0.005, 0.02, 0.10
_REFUSED_CLIENT_ERRORS = ("invalid", "too_large")
_FEW = 10.0


def _fallen(view: View) -> Evidence | None:
    """Fewer tokens a second than in the earlier half of the window, or fewer for the engine's time than ever before."""
    halves = view.halves()
    if halves is not None:
        before, now = (half.rate("output_tokens_total") for half in halves)
        if before and now is not None and before > 1.0 and now < _FALLEN * before:
            text = f"{rate(now)} output tokens/s where {rate(before)} were made in the first half of the window"
            return Evidence(min(before / max(now, 0.01), 100.0), (text,))
    usual, now = view.tokens_per_engine_s(is_usual=True), view.tokens_per_engine_s()
    if usual and now is not None and now < _FALLEN * usual:
        text = f"{rate(now)} output tokens for each second of engine time where {rate(usual)} were usual"
        return Evidence(usual / max(now, 0.01), (text,))
    return None


def _fewer_come(view: View) -> Evidence | None:
    halves = view.halves()
    if halves is None or view.queued() >= 1.0:
        return None
    before, now = (half.rate("requests_offered_total") for half in halves)
    if not before or now is None or now >= _FALLEN * before:
        return None
    text = f"{rate(now)} requests/s arrive where {rate(before)} did; nothing waits"
    return Evidence(min(before / max(now, 0.01), 100.0), (text,))


def _refused(view: View, *, is_fault: bool | None) -> Evidence | None:
    """`is_fault`: True of not serving, False of load, None of clients' own errors."""
    offered = view.window.increase("requests_offered_total")
    if not offered or offered < _FEW:
        return None
    codes = {None: _REFUSED_CLIENT_ERRORS, True: ("not_serving",), False: ("overloaded",)}[is_fault]
    refused = _growth(view, codes)
    total = sum(refused.values())
    told = ", ".join(f"{name} {reason} {count(n)}" for (name, reason), n in _largest(refused))
    text = f"{percent(total / offered)} of {count(offered)} requests refused ({told})"
    pressure = view.window.mean("pressure_ratio")
    more = () if pressure is None else (f"pressure {pressure:.2f}, rung {count(view.window.now('rung'))}",)
    return beyond(total / offered, _REFUSED, text, *more)


def _growth(view: View, codes: Sequence[str]) -> dict[tuple[str, str], float]:
    """(class, reason) -> refused within the window."""
    window = view.window
    names, reasons = (window.by("requests_refused_total", label) for label in ("class", "reason"))
    return {
        (name, reason): sum(
            window.increase("requests_refused_total", code=code, reason=reason, **{"class": name}) or 0.0
            for code in codes
        )
        for name in names
        for reason in reasons
    }


def _largest(refused: Mapping[tuple[str, str], float]) -> list[tuple[tuple[str, str], float]]:
    found = [(key, n) for key, n in refused.items() if n > 0.0]
    return sorted(found, key=lambda each: -each[1])[:4]


def _failed(view: View) -> Evidence | None:
    failed, share = view.window.increase("requests_ended_total", terminal="failed"), view.ended_share("failed")
    restarts = view.window.increase("engine_restarts_total")
    if not failed and not restarts:
        return None
    text = f"{count(failed)} requests failed ({percent(share)} of those that ended), engine restarts {count(restarts)}"
    return Evidence(1.0 + (share or 0.0) / _FAILED + (restarts or 0.0), (text,))


def _expired(view: View) -> Evidence | None:
    share = view.ended_share("expired")
    queue = view.window.quantile("queue_time_seconds", 0.9)
    text = f"{percent(share)} of requests expired before their first token; queue time P90 {seconds(queue)}"
    return beyond(share, _EXPIRED, text)


def _cancelled(view: View) -> Evidence | None:
    share = view.ended_share("cancelled")
    cancelled = view.window.increase("requests_ended_total", terminal="cancelled")
    text = f"{percent(share)} of requests ({count(cancelled)}) were given up by their clients"
    return beyond(share, _CANCELLED, text) if (cancelled or 0.0) >= _FEW else None


def _streams_dropped(view: View) -> Evidence | None:
    dropped = view.window.increase("streams_dropped_total")
    resumed = view.window.increase("streams_resumed_total")
    text = f"{count(dropped)} kept streams were dropped, {count(resumed)} were come back for"
    return beyond(dropped, _FEW, text) if dropped and dropped > (resumed or 0.0) else None


def _shorter_answers(view: View) -> Evidence | None:
    now, usual = view.window.mean_observed("request_output_tokens"), view.usual_mean("request_output_tokens")
    if now is None or not usual or now >= _FALLEN * usual:
        return None
    text = f"answers have {count(now)} tokens where {count(usual)} were usual"
    return Evidence(usual / max(now, 0.01), (text,))


def _smaller_batch(view: View) -> Evidence | None:
    now, usual = view.batch(), view.batch(is_usual=True)
    if now is None or not usual or now >= _FALLEN * usual:
        return None
    text = f"{rate(now)} requests in a step where {rate(usual)} were usual, {count(view.queued())} wait"
    return Evidence(usual / max(now, 0.01), (text,))


def _held_back(view: View) -> Evidence | None:
    """Requests wait while places are free and the cache has room."""
    running, most = view.while_waiting("running_requests"), view.while_waiting("max_running_requests")
    if view.queued() < 1.0 or running is None or not most or running >= 0.5 * most:
        return None
    credit = view.window.now("credit_seconds")
    text = f"{count(running)} of {count(most)} places taken while {count(view.queued())} requests wait"
    return Evidence(most / max(running, 1.0), (text, f"credit {seconds(credit)}"))


_FEWER_COME = Leaf(
    id="fewer-requests",
    kind=Kind.NOTE,
    what="Fewer requests arrive; nothing is wrong with the server.",
    change="If that surprises you, look in front of it: the router, DNS, the gateway's own refusals.",
    look=_fewer_come,
)
_SHED = Leaf(
    id="shedding",
    kind=Kind.OVERLOAD,
    what="Requests are refused because of load.",
    change="Add a replica, move offline work, or accept it: what is refused is told when to come back. See which "
    "classes with `seekserve top`.",
    look=lambda view: _refused(view, is_fault=False),
)
_NOT_SERVING = Leaf(
    id="not-serving",
    kind=Kind.FAULT,
    what="Requests are refused because the server is not serving: draining, paused, or its engine is broken.",
    change="`seekserve status` says which. A drain or a swap ends by itself; a broken engine is restarted by "
    "`seekserve launch`.",
    look=lambda view: _refused(view, is_fault=True),
)
_BAD_REQUESTS = Leaf(
    id="bad-requests",
    kind=Kind.WASTE,
    what="Clients send requests that can never be served.",
    change="Each refusal names the field and the bound; find the client by its request ids in its own log.",
    look=lambda view: _refused(view, is_fault=None),
)
_FAILING = Leaf(
    id="failing",
    kind=Kind.FAULT,
    what="Requests fail in the engine.",
    change="Read the failures in the server's log; `seekserve collect` lists the last of them in "
    "launch/failed_requests.json.",
    look=_failed,
)
_EXPIRING = Leaf(
    id="expiring",
    kind=Kind.OVERLOAD,
    what="Requests are let in and then run out of time.",
    change="With `kind: paced` that happens when the engine is suddenly slower or work longer than expected: see the "
    "other findings. Other policies do not refuse on arrival what they cannot start in time.",
    look=_expired,
)
_LEAVING = Leaf(
    id="clients-leave",
    kind=Kind.WASTE,
    what="Clients give up on many requests, and what was computed for them is lost.",
    change="Compare their timeouts with TTFT and request duration; a retry without honouring the hint makes it worse.",
    look=_cancelled,
)
_NOT_RESUMED = Leaf(
    id="streams-not-resumed",
    kind=Kind.WASTE,
    what="Streams whose connection broke were kept and worked on, and nobody came back for them.",
    change="Clients that will not return should not ask for `resumable`, or give their streams up (`resume_cancel`). A "
    "shorter `resume_ttl_s`, or `work_while_away: false`, costs less.",
    look=_streams_dropped,
)
_SHORTER = Leaf(
    id="shorter-answers",
    kind=Kind.NOTE,
    what="Answers have become shorter, so fewer tokens are made for each prompt that is read.",
    change="If it is not meant: look for a lowered max_tokens, a new stop word, or a rung that cuts offline answers.",
    look=_shorter_answers,
)
_SMALLER = Leaf(
    id="smaller-batch",
    kind=Kind.NOTE,
    what="Fewer requests share each step, so each step makes fewer tokens.",
    change="Without a queue it only means less load. With one, see the finding about what holds requests back.",
    look=_smaller_batch,
)
_HELD = Leaf(
    id="held-back",
    kind=Kind.WASTE,
    what="Requests wait although places are free.",
    change="The pace holds prompts back to keep TPOT: a larger chunk, a looser TPOT target, or `offline_headroom` and "
    "`prefill_ahead_chunks` of the policy decide how far.",
    look=_held_back,
)
_UNEXPLAINED = Leaf(
    id="less-done",
    kind=Kind.UNEXPLAINED,
    what="Less gets done than before.",
    change="No rule here says why. `seekserve diagnose --profile DIR` writes scripts for nsys, ncu and the PyTorch "
    "profiler; `seekserve collect` gathers the rest.",
    look=lambda view: None,
)

THROUGHPUT = Branch(
    name="throughput",
    look=lambda view: Evidence(1.0, ()),
    leaves=(
        Branch(
            name="requests without an answer",
            look=lambda view: Evidence(1.0, ()),
            leaves=(_SHED, _NOT_SERVING, _BAD_REQUESTS, _FAILING, _EXPIRING, _LEAVING, _NOT_RESUMED, RAMPING),
        ),
        Branch(
            name="less is made",
            look=_fallen,
            leaves=(
                _FEWER_COME,
                SLOW_ENGINE,
                THROTTLED,
                KV_FULL,
                KV_OVERRESERVED,
                _HELD,
                RAMPING,
                CACHE_COLD,
                LONGER_PROMPTS,
                _SHORTER,
                _SMALLER,
            ),
            unexplained=_UNEXPLAINED,
        ),
    ),
)
