"""When the breaker opens, the core says what the engine was working on."""

from __future__ import annotations

from collections.abc import Callable

from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, End, Signals, StepReport, Terminal


def failed(*ids: str) -> StepReport:
    return StepReport(step_ms=1.0, ends=tuple(End(id=id, terminal=Terminal.FAILED, tokens=3) for id in ids))


def test_an_opening_says_what_ran_before_the_fault_took_it(
    make_scheduler: Callable[..., Scheduler], accept: Callable[..., Accepted]
) -> None:
    scheduler = make_scheduler(breaker={"faults_in_a_row": 2})
    for n in range(4):
        accept(scheduler, f"r{n}", prompt_tokens=10 + n, max_tokens=5)
    scheduler.step(1.0, Signals())
    scheduler.observe(StepReport(step_ms=1.0, prefill_tokens=21, firsts=("r0", "r1")), 1.5)
    scheduler.observe(failed("r0"), 2.0)
    assert not scheduler.openings, "one fault opens nothing here"
    scheduler.observe(failed("r1", "r2"), 3.0)
    (opening,) = scheduler.openings
    assert (opening.number, opening.at_s, opening.failed_ids) == (1, 3.0, {"r1", "r2"})
    assert [(each.id, each.request_class, each.prompt_tokens, each.max_tokens) for each in opening.running] == [
        (f"r{n}", "interactive", 10 + n, 5) for n in (1, 2, 3)
    ]
    assert [each.held_tokens for each in opening.running] == [12, 0, 0]
    assert {each.age_ms for each in opening.running} == {3000.0}
    scheduler.check_integrity()


def test_openings_that_nobody_takes_do_not_heap_up(
    make_scheduler: Callable[..., Scheduler], accept: Callable[..., Accepted]
) -> None:
    scheduler = make_scheduler(breaker={"faults_in_a_row": 1, "pause_s": 1.0, "most_pause_s": 1.0})
    for n in range(30):
        now = 10.0 * n
        assert scheduler.offer(f"r{n}", prompt_bytes=4, request_class=None, now=now) is None
        accept(scheduler, f"r{n}", now)
        scheduler.step(now, Signals())
        scheduler.observe(failed(f"r{n}"), now)
    assert scheduler.breaker.openings == 30
    assert [each.number for each in scheduler.openings] == list(range(23, 31))
