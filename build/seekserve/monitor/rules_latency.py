"""The tree of a latency spike: first tokens that come late (waiting, reading, forming), tokens that come slowly,
streams that stand still, answers that are made but not sent. Pure.
"""

from __future__ import annotations

from .rules_causes import (
    BREAKER,
    CACHE_COLD,
    HICCUPS,
    KV_FULL,
    KV_OVERRESERVED,
    LONGER_PROMPTS,
    OVERLOAD,
    RAMPING,
    SLOTS_FULL,
    SLOW_ENGINE,
    THROTTLED,
    beyond,
)
from .tree import Branch, Evidence, Kind, Leaf
from .view import View
from .window import quantile
from .words import count, percent, rate, ratio, seconds

__all__ = ["LATENCY"]

_TIMES_USUAL = 2.0
# Where neither a promise nor a past is known.
_MOST_TTFT_S, _MOST_TPOT_S = 2.0, 0.1
# What is below these is no spike, however low the usual was.
_LEAST_TTFT_S, _LEAST_TPOT_S = 0.1, 0.01
_FORMING_S = 0.005
_MANY_IN_INTAKE = 4.0
_STEP_OVER_TARGET = 1.1
_STALL_S, _SEND_S = 5.0, 1.0
_MANY_UNSENT = 200.0


def _spike(view: View, name: str, metric: str, short: str) -> Evidence | None:
    """Of one class: P90 over what was promised, else over twice what was usual, else over what is bad for anybody."""
    now = view.window.quantile(metric, 0.9, **{"class": name})
    if now is None:
        return None
    is_first = metric == "time_to_first_token_seconds"
    wanted = view.wanted_ttft_s(name) if is_first else view.wanted_tpot_s(name)
    if wanted is not None:
        return beyond(now, wanted, f"{short} P90 of {name} {seconds(now)}, promised {seconds(wanted)}")
    usual = view.usual(metric, 0.9, **{"class": name})
    if usual is None:
        bound = _MOST_TTFT_S if is_first else _MOST_TPOT_S
        return beyond(now, bound, f"{short} P90 of {name} {seconds(now)} (more than {seconds(bound)})")
    bound = max(_TIMES_USUAL * usual, _LEAST_TTFT_S if is_first else _LEAST_TPOT_S)
    return beyond(now, bound, f"{short} P90 of {name} {seconds(now)}, usual was {seconds(usual)}")


def _worst(found: list[Evidence | None]) -> Evidence | None:
    there = [each for each in found if each is not None]
    if not there:
        return None
    numbers = tuple(text for each in sorted(there, key=lambda e: -e.strength) for text in each.numbers)
    return Evidence(max(each.strength for each in there), numbers)


def _late_first(view: View) -> Evidence | None:
    return _worst([_spike(view, name, "time_to_first_token_seconds", "TTFT") for name in view.urgent_classes()])


def _slow_tokens(view: View) -> Evidence | None:
    return _worst([_spike(view, name, "time_per_output_token_seconds", "TPOT") for name in view.urgent_classes()])


def _means(view: View) -> tuple[float, float] | None:
    """(queue, TTFT) of urgent requests, in seconds, means."""
    window, queue, first, n_queue, n_first = view.window, 0.0, 0.0, 0.0, 0.0
    for name in view.urgent_classes():
        a = window.observed("queue_time_seconds", **{"class": name})
        b = window.observed("time_to_first_token_seconds", **{"class": name})
        if a is not None and b is not None:
            queue, n_queue, first, n_first = queue + a.sum, n_queue + a.count, first + b.sum, n_first + b.count
    return (queue / n_queue, first / n_first) if n_queue and n_first else None


def _waiting(view: View) -> Evidence | None:
    means = _means(view)
    if means is None:
        return None
    queue, first = means
    text = f"of {seconds(first)} to the first token {seconds(queue)} are spent in the queue (means)"
    return beyond(queue / first if first > 0.0 else None, 0.5, text)


def _reading(view: View) -> Evidence | None:
    means = _means(view)
    if means is None:
        return None
    queue, first = means
    text = f"of {seconds(first)} to the first token {seconds(first - queue)} follow the release (means)"
    return beyond((first - queue) / first if first > 0.0 else None, 0.5, text)


def _long_ahead(view: View) -> Evidence | None:
    prompts = view.window.observed("request_prompt_tokens")
    if prompts is None:
        return None
    high, middle = quantile(prompts, 0.98) or 0.0, quantile(prompts, 0.5) or 1.0
    if high < 4.0 * middle:
        return None
    return beyond(high, 8192.0, f"one prompt in 50 has more than {count(high)} tokens, half have under {count(middle)}")


def _starved(view: View) -> Evidence | None:
    share = view.window.mean("prefill_share_ratio")
    if share is None or share > 0.1:
        return None
    target = view.window.now("step_target_seconds")
    text = f"prompts may take {percent(share)} of the engine's time beside {count(view.batch())} running requests"
    return Evidence(0.1 / max(share, 0.01), (text, f"step target {seconds(target)}"))


def _forming(view: View) -> Evidence | None:
    now = view.window.quantile("batch_formation_seconds", 0.9)
    return beyond(now, _FORMING_S, f"batch formation P90 {seconds(now)} (target {seconds(_FORMING_S)})")


def _intake(view: View) -> Evidence | None:
    waiting = view.window.mean("intake_requests")
    text = f"{count(waiting)} requests wait to be tokenised"
    return beyond(waiting, _MANY_IN_INTAKE, text)


def _big_batch(view: View) -> Evidence | None:
    target, bias = view.window.mean("step_target_seconds"), view.window.mean("step_bias_ratio")
    steps = view.window.observed("engine_step_seconds")
    if not target or steps is None or (bias or 1.0) >= 1.3:
        return None
    step = steps.sum / steps.count
    text = f"a step takes {seconds(step)}, target {seconds(target)}, with {count(view.batch())} requests in it"
    return beyond(step / target, _STEP_OVER_TARGET, text)


def _more_share(view: View) -> Evidence | None:
    now, usual = view.batch(), view.batch(is_usual=True)
    if now is None or not usual or (view.window.mean("step_bias_ratio") or 1.0) >= 1.3:
        return None
    return beyond(now / usual, 1.5, f"{rate(now)} requests in a step where {rate(usual)} were usual")


def _stalled(view: View) -> Evidence | None:
    window = view.window
    silence, age = window.peak("stream_silence_seconds"), window.peak("engine_loop_age_seconds")
    bound = max(_STALL_S, 20.0 * (window.now("step_mean_seconds") or 0.0))
    worst = max((value for value in (silence, age) if value is not None), default=None)
    text = f"longest silence of a stream {seconds(silence)}, engine loop last seen {seconds(age)} ago"
    return beyond(worst, bound, text, f"{ratio(window.now('running_requests'))} requests are running")


def _unsent(view: View) -> Evidence | None:
    age, waiting = view.window.peak("send_age_seconds"), view.window.mean("outbox_responses")
    text = f"oldest send {seconds(age)} old, {count(waiting)} responses wait to be sent"
    return beyond(age, _SEND_S, text) or beyond(waiting, _MANY_UNSENT, text)


_LONG_AHEAD = Leaf(
    id="long-prompts-ahead",
    kind=Kind.WASTE,
    what="A few very long prompts hold up the short ones.",
    change="Give long prompts a class or replicas of their own; `long_prompt_tokens` and the chunk size of the policy "
    "say how much of the engine one of them may take.",
    look=_long_ahead,
)
_STARVED = Leaf(
    id="prefill-starved",
    kind=Kind.OVERLOAD,
    what="Running requests leave prompts almost no time.",
    change="The TPOT target is tight for this batch: loosen it in the policy, lower max_batch_size, or add a replica.",
    look=_starved,
)
_BIG_BATCH = Leaf(
    id="batch-beyond-target",
    kind=Kind.OVERLOAD,
    what="Steps take longer than the pace aims at, because of what is in them.",
    change="Lower max_batch_size or the prefill chunk, or loosen the TPOT target that the step target comes from.",
    look=_big_batch,
)
_MORE_SHARE = Leaf(
    id="bigger-batch",
    kind=Kind.NOTE,
    what="More requests share each step, so each gets its tokens more slowly.",
    change="As it is meant, while TPOT stays within what is promised (give --slo to have that checked). If it may not "
    "be: a tighter TPOT target in the policy, or another replica.",
    look=_more_share,
)
_STALLED = Leaf(
    id="stalled",
    kind=Kind.FAULT,
    what="Streams stand still: the engine does not come round.",
    change="`seekserve launch` restarts it after --engine-stall-s. Gather now what would be gone then: "
    "`seekserve collect`. On several GPUs a hung collective is the usual reason (NCCL; look for Xid in the kernel's "
    "log).",
    look=_stalled,
)
_UNSENT = Leaf(
    id="answers-not-sent",
    kind=Kind.FAULT,
    what="Answers are made but do not leave the server.",
    change="Clients that read too slowly, or a gRPC front end without CPU: look at the machine's load, and at proxies "
    "that buffer.",
    look=_unsent,
)
_FORMING = Leaf(
    id="slow-formation",
    kind=Kind.WASTE,
    what="It takes long from the decision to start a request until the engine has it.",
    change="The server's Python process lacks CPU time: give the node more cores, pin it away from the engine's "
    "workers, and look for other Python models in the same server.",
    look=_forming,
)
_INTAKE = Leaf(
    id="slow-intake",
    kind=Kind.WASTE,
    what="Requests queue up to be tokenised.",
    change="Very long prompts or too little CPU: more cores, or let clients send input_ids.",
    look=_intake,
)


def _unexplained(id: str, what: str) -> Leaf:
    return Leaf(
        id=id,
        kind=Kind.UNEXPLAINED,
        what=what,
        change="No rule here says why. `seekserve diagnose --profile DIR` writes scripts for nsys, ncu and the PyTorch "
        "profiler; `seekserve collect` gathers the rest.",
        look=lambda view: None,
    )


LATENCY = Branch(
    name="latency",
    look=lambda view: Evidence(1.0, ()),
    leaves=(
        _STALLED,
        _UNSENT,
        _FORMING,
        _INTAKE,
        Branch(
            name="first token late",
            look=_late_first,
            leaves=(
                Branch(
                    name="waiting in the queue",
                    look=_waiting,
                    leaves=(
                        BREAKER,
                        OVERLOAD,
                        KV_FULL,
                        KV_OVERRESERVED,
                        SLOTS_FULL,
                        RAMPING,
                        SLOW_ENGINE,
                        THROTTLED,
                        _LONG_AHEAD,
                        _STARVED,
                    ),
                ),
                Branch(
                    name="prompt being read",
                    look=_reading,
                    leaves=(LONGER_PROMPTS, CACHE_COLD, _STARVED, _LONG_AHEAD, SLOW_ENGINE, THROTTLED, HICCUPS),
                ),
            ),
            unexplained=_unexplained("late-first-token", "First tokens come late."),
        ),
        Branch(
            name="tokens slow",
            look=_slow_tokens,
            leaves=(SLOW_ENGINE, THROTTLED, _BIG_BATCH, HICCUPS, _MORE_SHARE),
            unexplained=_unexplained("slow-tokens", "Tokens come slowly."),
        ),
    ),
)
