"""Classes: who gets which, and that every kind of policy keeps their limits without losing anybody."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.contract.routes import Origin
from seekserve_backend.core.classes import bound_sampling, choose_class
from seekserve_backend.core.refusals import Refusal
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, End, Expire, Refused, Release, Request, Signals, StepReport, Terminal

KINDS = ("fcfs", "static", "seed", "paced")
SLOTS, BLOCKS, BLOCK_TOKENS = 6, 40, 4
Make = Callable[..., Scheduler]


def rules(**limits: Any) -> dict[str, Any]:
    return {"max_queue_requests": 1000, "deadline_ms": 60_000, **limits}


def policy(**data: Any) -> Policy:
    classes = {"chat": rules(priority=0), "bulk": rules(priority=2), "offline": rules(priority=3)}
    return Policy.from_data({"default_class": "chat", "classes": classes, **data}, "p")


TEXTS = st.sampled_from(["", "a", "ab", "/v1/chat", "/v1/batch", "offline"])
PATTERNS = st.sampled_from([None, "a", "a*", "/v1/*", "/v1/chat", "offline"])
ROUTES = st.lists(
    st.tuples(st.sampled_from(["chat", "bulk", "offline"]), PATTERNS, PATTERNS, PATTERNS).filter(
        lambda rule: any(each is not None for each in rule[1:])
    ),
    max_size=5,
    unique_by=lambda rule: rule[1:],
)


def route(name: str, endpoint: str | None, tenant: str | None, header: str | None) -> dict[str, Any]:
    data = {"class": name, "endpoint": endpoint, "tenant": tenant}
    given_header = {} if header is None else {"header": {"x-request-type": header}}
    return {**{key: value for key, value in data.items() if value is not None}, **given_header}


@given(routes=ROUTES, endpoint=TEXTS, tenant=TEXTS, header=TEXTS)
def test_the_first_rule_that_matches_decides(
    routes: list[tuple[str, str | None, str | None, str | None]], endpoint: str, tenant: str, header: str
) -> None:
    def holds(pattern: str | None, value: str) -> bool:
        return pattern is None or (value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern)

    made = policy(routes=[route(*rule) for rule in routes])
    origin = Origin(endpoint=endpoint, tenant=tenant, headers={"x-request-type": header} if header else {})
    matching = [r[0] for r in routes if holds(r[1], endpoint) and holds(r[2], tenant) and holds(r[3], header)]
    is_header_routed = any(rule[3] is not None for rule in routes)
    by_header = header if header and not is_header_routed else None
    assert choose_class(made, None, origin) == (by_header or (matching[0] if matching else "chat"))
    assert choose_class(made, "bulk", origin) == "bulk", "a class named by the client wins"


def test_a_batch_is_offline_where_no_rule_says_otherwise() -> None:
    batch = Origin(endpoint="/v1/batch/completions")
    classes = {"chat": rules(priority=0), "slow": rules(priority=2, is_offline=True)}
    assert choose_class(policy(classes=classes), None, batch) == "slow"
    ruled = policy(classes=classes, routes=[{"class": "chat", "endpoint": "/v1/*"}])
    assert choose_class(ruled, None, batch) == "chat"
    assert choose_class(policy(), None, batch) == "chat", "no class is marked as offline"


@pytest.mark.parametrize(
    ("data", "named", "tenant", "chosen"),
    [
        ({"client_class": "bounded"}, "chat", "", "bulk"),
        ({"client_class": "bounded"}, "offline", "", "offline"),
        ({"client_class": "bounded"}, None, "", "bulk"),
        ({"client_class": "ignored"}, "chat", "", "bulk"),
        ({"client_class": "bounded"}, "nobody", "", "nobody"),  # refused by name later
        ({"tenant_classes": {"a": ["offline", "chat"]}}, None, "a", "offline"),
        ({"tenant_classes": {"a": ["offline", "chat"]}}, "chat", "a", "chat"),
        ({"tenant_classes": {"a": ["offline"]}}, "chat", "b", "chat"),
        ({"tenant_classes": {"a": ["offline"], "*": ["chat"]}}, None, "b", "chat"),
        ({"tenant_classes": {"a": ["chat"]}}, "offline", "a", Refusal),
    ],
)
def test_what_a_client_asks_for_is_bounded_as_the_policy_says(
    data: dict[str, Any], named: str | None, tenant: str, chosen: Any
) -> None:
    made = policy(routes=[{"class": "bulk", "endpoint": "/e"}], **data)
    got = choose_class(made, named, Origin(endpoint="/e", tenant=tenant))
    if chosen is Refusal:
        assert isinstance(got, Refusal)
        assert (got.code, got.field) == (ErrorCode.INVALID, "request_class")
    else:
        assert got == chosen


VALUES = st.floats(-2, 2)


@given(low=VALUES, span=st.floats(0, 2), value=st.none() | VALUES, refuse=st.booleans(), has=st.booleans())
def test_a_bound_clamps_or_refuses_and_never_changes_what_it_holds(
    low: float, span: float, value: float | None, refuse: bool, has: bool
) -> None:
    high = min(2.0, low + span)
    bound = {"min": low, "max": high, "outside": "refuse" if refuse else "clamp", **({"default": low} if has else {})}
    classes = {"chat": rules(sampling={"frequency_penalty": bound})}
    made = policy(classes=classes).classes["chat"]
    got = bound_sampling("chat", made, {} if value is None else {"frequency_penalty": value})
    if value is None:
        assert got == ({"frequency_penalty": low} if has else {})
    elif low <= value <= high:
        assert got == {}
    elif refuse:
        assert isinstance(got, Refusal)
        assert (got.code, got.field) == (ErrorCode.INVALID, "frequency_penalty")
    else:
        assert got == {"frequency_penalty": min(max(value, low), high)}


def test_class_limits_refuse_with_field_and_bound(make_scheduler: Make) -> None:
    classes = {"chat": rules(max_prompt_tokens=10, max_output_tokens=5), "bulk": rules(priority=1)}
    for clamps in (True, False):
        core = make_scheduler(default_class="chat", classes=classes, clamp_max_tokens=clamps)
        long = core.submit(Request(id="a", prompt_tokens=11, max_tokens=1, arrival_s=0.0), 0.0)
        assert isinstance(long, Refused)
        assert (long.code, long.field, long.retry_after_ms) == (ErrorCode.TOO_LARGE, "prompt", None)
        assert "class chat takes at most 10" in long.reason
        silent = core.submit(Request(id="b", prompt_tokens=3, max_tokens=None, arrival_s=0.0), 0.0)
        assert isinstance(silent, Accepted)
        assert silent.max_tokens == 5
        much = core.submit(Request(id="c", prompt_tokens=3, max_tokens=9, arrival_s=0.0), 0.0)
        if clamps:
            assert isinstance(much, Accepted)
            assert much.max_tokens == 5
        else:
            assert isinstance(much, Refused)
            assert much.field == "max_tokens"
        core.check_integrity()


def test_sampling_and_class_are_judged_at_the_door(make_scheduler: Make) -> None:
    bounds = {"temperature": {"max": 1.0}, "top_p": {"min": 0.5, "outside": "refuse"}}
    core = make_scheduler(
        default_class="chat",
        classes={"chat": rules(), "bulk": rules(priority=1, sampling=bounds)},
        routes=[{"class": "bulk", "endpoint": "/b"}],
        tenant_classes={"t": ["chat"]},
    )
    at = Origin(endpoint="/b")
    assert core.offer("a", prompt_bytes=1, request_class=None, now=0.0, origin=at, sampling={"temperature": 2}) is None
    assert core.sampling_of("a") == {"temperature": 1.0}
    refused = core.offer("b", prompt_bytes=1, request_class=None, now=0.0, origin=at, sampling={"top_p": 0.1})
    assert refused is not None
    assert (refused.code, refused.field) == (ErrorCode.INVALID, "top_p")
    assert "class bulk takes at least 0.5" in refused.reason
    other = core.offer("c", prompt_bytes=1, request_class="bulk", now=0.0, origin=Origin(tenant="t"))
    assert other is not None
    assert other.field == "request_class"
    core.check_integrity()


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_timeout_ends_what_waits_and_not_what_runs(kind: str, make_scheduler: Make) -> None:
    core = make_scheduler(
        kind=kind,
        max_running=1,
        max_batch_size=1,
        default_class="chat",
        classes={"chat": rules(queue_timeout_ms=50)},
        seed={"form_requests": 1, "cold_batch": 1},
        paced={"ramp_doubling_s": 0.0},
    )
    for id in ("a", "b"):
        core.offer(id, prompt_bytes=1, request_class=None, now=0.0)
        core.submit(Request(id=id, prompt_tokens=4, max_tokens=4, arrival_s=0.0), 0.0)
    assert [d.id for d in core.step(0.001, Signals())] == ["a"]
    assert core.next_deadline_s() == 0.05
    assert core.step(0.049, Signals()) == ()
    (late,) = core.step(0.05, Signals())
    assert isinstance(late, Expire)
    assert (late.id, late.is_queue_timeout, late.was_running, late.deadline_ms) == ("b", True, False, 50)
    assert core.next_deadline_s() == 60.0, "what runs has its deadline back"
    core.check_integrity()


LIMITED = {
    "chat": rules(priority=0, kv_reserved_share=0.3),
    "bulk": rules(priority=1, max_running=2, deadline_ms=500),
    "offline": rules(priority=2, is_offline=True, max_running=1, kv_reserved_share=0.1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_caps_and_reservations_hold_under_every_kind_and_nobody_is_lost(
    kind: str, seed: int, make_scheduler: Make
) -> None:
    pick = random.Random(seed)
    core = make_scheduler(
        kind=kind,
        max_running=5,
        max_batch_size=SLOTS,
        capacity_blocks=BLOCKS,
        default_class="chat",
        classes=LIMITED,
        seed={"form_requests": 2, "cold_batch": 8},
        paced={"ramp_doubling_s": 0.0, "offline_headroom": 0.0},
    )
    now, count = 1.0, 0
    engine: dict[str, tuple[str, int, int]] = {}
    waiting: dict[str, tuple[str, int, int]] = {}
    reserved = {name: int(rule.get("kv_reserved_share", 0.0) * BLOCKS) for name, rule in LIMITED.items()}

    def used(name: str) -> int:
        return sum(blocks for each, blocks, _ in engine.values() if each == name)

    for turn in range(400):
        now += pick.choice([0.001, 0.02, 0.1])
        if turn < 300 and pick.random() < 0.6:
            id, name = f"r{count}", pick.choice(list(LIMITED))
            count += 1
            prompt, most = pick.choice([(4, 4), (20, 12), (60, 30)])
            answer = core.submit(
                Request(id=id, prompt_tokens=prompt, max_tokens=most, request_class=name, arrival_s=now), now
            )
            if isinstance(answer, Accepted):
                waiting[id] = (name, -(-(prompt + answer.max_tokens) // BLOCK_TOKENS), prompt)
        for decision in core.step(now, Signals()):
            # One that expires in the engine stays there until its end is reported.
            name, blocks, prompt = waiting.pop(decision.id, ("", 0, 0))
            if isinstance(decision, Release):
                was_empty = not engine
                engine[decision.id] = (name, blocks, prompt)
                cap = LIMITED[name].get("max_running")
                assert cap is None or sum(each[0] == name for each in engine.values()) <= cap
                free = BLOCKS - sum(each[1] for each in engine.values())
                owed = sum(max(0, reserved[other] - used(other)) for other in reserved if other != name)
                assert was_empty or free >= owed, "what others have reserved is left to them"
        if engine and pick.random() < 0.7:
            id = pick.choice(list(engine))
            prompt = engine.pop(id)[2]
            end = End(id=id, terminal=Terminal.FINISHED, tokens=3)
            core.observe(
                StepReport(step_ms=5.0, prefill_tokens=prompt, decode_tokens=2, firsts=(id,), ends=(end,)), now
            )
        core.check_integrity()
    for _ in range(400):
        now += 0.3
        for decision in core.step(now, Signals()):
            entry = waiting.pop(decision.id, ("", 0, 0))
            if isinstance(decision, Release):
                engine[decision.id] = entry
        ends = tuple(End(id=id, terminal=Terminal.FINISHED, tokens=3) for id in engine)
        firsts, read = tuple(engine), sum(each[2] for each in engine.values())
        core.observe(StepReport(step_ms=5.0, prefill_tokens=read, firsts=firsts, ends=ends), now)
        engine.clear()
    snapshot = core.snapshot()
    assert snapshot.offered == sum(snapshot.terminals.values()) == count
    assert snapshot.terminals["finished"] > 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_at_its_cap_does_not_hold_up_the_others(kind: str, make_scheduler: Make) -> None:
    core = make_scheduler(
        kind=kind,
        max_running=6,
        max_batch_size=SLOTS,
        default_class="chat",
        classes={"chat": rules(priority=0, max_running=1), "bulk": rules(priority=1)},
        seed={"form_requests": 1, "cold_batch": 8},
        paced={"ramp_doubling_s": 0.0, "prefill_ahead_chunks": 1000.0},
    )
    for n in range(3):
        core.submit(Request(id=f"c{n}", prompt_tokens=4, max_tokens=4, request_class="chat", arrival_s=0.0), 0.0)
    core.submit(Request(id="b", prompt_tokens=4, max_tokens=4, request_class="bulk", arrival_s=0.0), 0.0)
    assert sorted(decision.id for decision in core.step(0.1, Signals())) == ["b", "c0"]


def test_a_request_that_a_reservation_makes_impossible_is_told_so(make_scheduler: Make) -> None:
    classes = {"chat": rules(kv_reserved_share=0.5), "bulk": rules(priority=1)}
    core = make_scheduler(default_class="chat", classes=classes, capacity_blocks=20)
    no = core.submit(Request(id="a", prompt_tokens=45, max_tokens=4, request_class="bulk", arrival_s=0.0), 0.0)
    assert isinstance(no, Refused)
    assert (no.code, no.field) == (ErrorCode.TOO_LARGE, "prompt")
    assert isinstance(core.submit(Request(id="b", prompt_tokens=45, max_tokens=4, arrival_s=0.0), 0.0), Accepted)
