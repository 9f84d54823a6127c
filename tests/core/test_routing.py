"""Requests that another model answers: who is routed, and that the books count each of them once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, Expire, Phase, Refused, Release, Request, Signals, Terminal

Make = Callable[..., Scheduler]
RULES = {"max_queue_requests": 3, "deadline_ms": 2000}
CLASSES = {
    "chat": {**RULES, "priority": 0, "max_prompt_tokens": 20},
    "draft": {**RULES, "priority": 1},
    "offline": {**RULES, "priority": 2, "is_offline": True},
}


def routing(make: Make, *classes: str, **changes: Any) -> Scheduler:
    """On the rung that routes from the first step on."""
    core = make(
        kind="paced",
        default_class="chat",
        classes=CLASSES,
        rungs=[{"at": 0.0, "route_to": "int8", **({"route_classes": list(classes)} if classes else {})}],
        paced={"rung_up_s": 0.0, "ramp_doubling_s": 0.0},
        **changes,
    )
    core.step(0.0, Signals())
    return core


def submit(core: Scheduler, id: str, now: float = 0.0, **wishes: Any) -> Accepted | Refused:
    wishes = {"prompt_tokens": 4, "max_tokens": 4, "arrival_s": now, **wishes}
    return core.submit(Request(id=id, **wishes), now, variants=("int8",))


def test_only_named_classes_and_only_to_a_model_that_is_there(make_scheduler: Make) -> None:
    core = routing(make_scheduler, "draft")
    answers = [
        submit(core, "a", request_class="draft"),
        submit(core, "b", request_class="chat"),
        submit(core, "c", request_class="draft", is_probe=True),
        core.submit(Request(id="d", prompt_tokens=4, max_tokens=4, request_class="draft"), 0.0),
    ]
    assert [a.route_to for a in answers if isinstance(a, Accepted)] == ["int8", None, None, None]
    snapshot = core.snapshot()
    assert (snapshot.routed, sum(snapshot.queued_by_class.values())) == (1, 3)
    core.check_integrity()


def test_class_limits_hold_for_what_is_routed_and_a_full_queue_does_not(make_scheduler: Make) -> None:
    core = routing(make_scheduler)
    long = submit(core, "long", prompt_tokens=21)
    assert isinstance(long, Refused)
    assert long.field == "prompt"
    assert all(isinstance(submit(core, f"r{n}"), Accepted) for n in range(10))
    assert core.snapshot().routed == 10
    core.check_integrity()


def test_work_that_is_routed_still_presses(make_scheduler: Make) -> None:
    core = routing(make_scheduler)
    before = core.snapshot().gauges["pressure"]
    for n in range(10):
        submit(core, f"r{n}", prompt_tokens=20)
    core.step(0.01, Signals())
    assert core.snapshot().gauges["pressure"] > before


def test_every_way_out_of_a_route(make_scheduler: Make) -> None:
    core = routing(make_scheduler)
    for id in ("done", "left", "late", "back", "lost", "answering"):
        submit(core, id)
    assert core.routing.end("done", Terminal.ROUTED)
    assert not core.routing.end("done", Terminal.FAILED), "it has ended"
    assert core.cancel("left", 0.1) is Phase.ROUTED
    core.fail("lost", 0.1)
    assert core.routing.take_back("back")
    again = core.submit(Request(id="back", prompt_tokens=4, max_tokens=4, arrival_s=0.0), 0.1)
    assert isinstance(again, Accepted)
    assert again.route_to is None
    core.routing.note_first("answering")
    decisions = core.step(2.0, Signals())
    assert [(d.id, type(d)) for d in decisions] == [("late", Expire), ("back", Expire)]
    assert isinstance(decisions[0], Expire)
    assert not decisions[0].was_running
    assert not core.routing.take_back("late")
    snapshot = core.snapshot()
    assert snapshot.routed == 1
    assert {k: n for k, n in snapshot.terminals.items() if n} == {
        "routed": 1,
        "cancelled": 1,
        "expired": 2,
        "failed": 1,
    }
    assert (snapshot.gauges["routes_started"], snapshot.gauges["routes_taken_back"]) == (6, 1)
    core.check_integrity()


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_each_is_counted_once(seed: int, make_scheduler: Make) -> None:
    core, pick, now = routing(make_scheduler, "chat", "offline"), random.Random(seed), 0.0
    count, over = 0, set[str]()

    def routed() -> list[str]:
        return [f"r{n}" for n in range(count) if core.position(f"r{n}") is None and f"r{n}" not in over]

    for _ in range(300):
        now += pick.choice([0.0, 0.01, 0.4])
        dice = pick.random()
        if dice < 0.5:
            id = f"r{count}"
            count += 1
            if isinstance(submit(core, id, now, request_class=pick.choice(list(CLASSES))), Refused):
                over.add(id)
        elif dice < 0.9 and (open_ids := routed()):
            id = pick.choice(open_ids)
            how = pick.choice(["end", "back", "cancel", "fail", "first"])
            if how == "end" and core.routing.end(id, pick.choice([Terminal.ROUTED, Terminal.FAILED])):
                over.add(id)
            elif how == "back" and core.routing.take_back(id):
                again = core.submit(Request(id=id, prompt_tokens=4, max_tokens=4, arrival_s=now), now)
                over |= {id} if isinstance(again, Refused) else set()
            elif how == "cancel" and core.cancel(id, now) not in (None, Phase.RUNNING):
                over.add(id)
            elif how == "fail":
                core.fail(id, now)
                over.add(id)
            else:
                core.routing.note_first(id)
        for decision in core.step(now, Signals()):
            assert decision.id not in over
            if isinstance(decision, Release):
                core.fail(decision.id, now)
            over.add(decision.id)
        core.check_integrity()
    snapshot = core.snapshot()
    assert snapshot.offered == count
    assert snapshot.offered == (
        sum(snapshot.terminals.values())
        + snapshot.routed
        + snapshot.intake
        + snapshot.running
        + sum(snapshot.queued_by_class.values())
    )
