"""Release, expiry, ends and cancels: each rule by a small scene."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.core.integrity import IntegrityError
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import (
    Accepted,
    End,
    Expire,
    Phase,
    Refused,
    Release,
    Request,
    Signals,
    StepReport,
    Terminal,
)

Make = Callable[..., Scheduler]
Accept = Callable[..., Accepted]
QUIET = Signals()
TWO_CLASSES = {
    "interactive": {"priority": 0, "max_queue_requests": 9, "deadline_ms": 10_000},
    "offline": {"priority": 1, "max_queue_requests": 9, "deadline_ms": 10_000},
}


def released(scheduler: Scheduler, now: float = 0.0, signals: Signals = QUIET) -> list[str]:
    out = [d.id for d in scheduler.step(now, signals) if isinstance(d, Release)]
    scheduler.check_integrity()
    return out


def end(scheduler: Scheduler, id: str, now: float = 0.0, terminal: Terminal = Terminal.FINISHED) -> None:
    scheduler.observe(StepReport(step_ms=1.0, ends=(End(id=id, terminal=terminal),)), now)
    scheduler.check_integrity()


def first_token(scheduler: Scheduler, id: str, now: float = 0.0) -> None:
    scheduler.observe(StepReport(step_ms=1.0, firsts=(id,)), now)
    scheduler.check_integrity()


def test_the_whole_life_of_a_request(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    assert scheduler.offer("r", prompt_bytes=9, request_class=None, now=1.0) is None
    assert scheduler.snapshot().intake == 1
    answer = scheduler.submit(Request(id="r", prompt_tokens=6, max_tokens=None, arrival_s=1.0), 1.5)
    assert answer == Accepted(id="r", max_tokens=8, request_class="interactive")
    assert scheduler.snapshot().queued_by_bucket["0-1k"] == 1
    assert scheduler.step(1.75, QUIET) == (Release(id="r", max_tokens=8, queue_ms=750.0),)
    assert scheduler.snapshot().reserved_blocks == 4  # 6 + 8 tokens in blocks of 4
    end(scheduler, "r", 2.0)
    snapshot = scheduler.snapshot()
    assert (snapshot.running, snapshot.reserved_blocks, snapshot.offered) == (0, 0, 1)
    assert snapshot.terminals["finished"] == 1


def test_release_is_first_in_first_out_within_a_class_and_by_priority_between(
    make_scheduler: Make, accept: Accept
) -> None:
    scheduler = make_scheduler(classes=TWO_CLASSES, max_batch_size=4)
    for id, name in [("o1", "offline"), ("i1", "interactive"), ("o2", "offline"), ("i2", "interactive")]:
        accept(scheduler, id, request_class=name)
    assert released(scheduler) == ["i1", "i2", "o1", "o2"]


def test_priority_counts_and_not_the_order_in_the_policy(make_scheduler: Make, accept: Accept) -> None:
    classes = dict(reversed(TWO_CLASSES.items()))
    scheduler = make_scheduler(classes=classes, max_batch_size=1)
    accept(scheduler, "o", request_class="offline")
    accept(scheduler, "i", request_class="interactive")
    assert released(scheduler) == ["i"]


def test_batch_slots_bound_the_running_requests(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(max_batch_size=2)
    for id in "abc":
        accept(scheduler, id)
    assert released(scheduler) == ["a", "b"]
    assert released(scheduler) == []
    end(scheduler, "a")
    assert released(scheduler) == ["c"]


def test_blocks_for_prompt_and_output_are_reserved_at_release(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(capacity_blocks=5)
    accept(scheduler, "a", prompt_tokens=5, max_tokens=4)  # 9 tokens: 3 blocks
    accept(scheduler, "b", prompt_tokens=4, max_tokens=4)  # 2 blocks
    accept(scheduler, "c", prompt_tokens=1, max_tokens=1)
    assert released(scheduler) == ["a", "b"]
    end(scheduler, "b")
    assert released(scheduler) == ["c"]


def test_a_head_that_does_not_fit_blocks_its_own_and_lower_classes(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(classes=TWO_CLASSES, capacity_blocks=10)
    accept(scheduler, "big", prompt_tokens=20, max_tokens=4)
    assert released(scheduler) == ["big"]
    accept(scheduler, "head", prompt_tokens=20, max_tokens=4)
    accept(scheduler, "small")
    accept(scheduler, "low", request_class="offline")
    assert released(scheduler) == []
    end(scheduler, "big")
    assert released(scheduler) == ["head", "small", "low"]


def test_a_queued_request_expires_at_its_deadline_and_never_starts(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(max_batch_size=1)
    accept(scheduler, "a")
    released(scheduler)
    accept(scheduler, "b", 1.0, deadline_ms=500)
    assert scheduler.next_deadline_s() == 1.5
    assert scheduler.step(1.499, QUIET) == ()
    (expired,) = scheduler.step(1.5, QUIET)
    assert isinstance(expired, Expire)
    assert (expired.id, expired.waited_ms, expired.deadline_ms, expired.was_running) == ("b", 500.0, 500, False)
    assert Policy().retry_after_min_ms <= expired.retry_after_ms <= Policy().retry_after_max_ms
    end(scheduler, "a", 1.6)
    assert released(scheduler, 1.7) == []
    assert scheduler.snapshot().terminals["expired"] == 1


def test_expiry_comes_before_release_in_one_step(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "late", deadline_ms=100)
    accept(scheduler, "good")
    decisions = scheduler.step(1.0, QUIET)
    assert [(type(d), d.id) for d in decisions] == [(Expire, "late"), (Release, "good")]


def test_a_running_request_expires_only_before_its_first_token(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "fast", deadline_ms=1000)
    accept(scheduler, "slow", deadline_ms=1000)
    released(scheduler)
    first_token(scheduler, "fast", 0.9)
    expired = scheduler.step(5.0, QUIET)
    assert [(e.id, e.waited_ms, e.was_running) for e in expired if isinstance(e, Expire)] == [("slow", 5000.0, True)]
    assert scheduler.next_deadline_s() is None
    assert scheduler.snapshot().running == 1


def test_an_expired_running_request_holds_slot_and_blocks_until_the_engine_ends_it(
    make_scheduler: Make, accept: Accept
) -> None:
    scheduler = make_scheduler(max_batch_size=1)
    accept(scheduler, "a", deadline_ms=1000)
    released(scheduler)
    accept(scheduler, "b", 0.5)
    assert [type(d) for d in scheduler.step(1.0, QUIET)] == [Expire]
    assert scheduler.snapshot().reserved_blocks == 2
    end(scheduler, "a", 1.1, Terminal.CANCELLED)
    assert released(scheduler, 1.2) == ["b"]
    assert {kind: n for kind, n in scheduler.snapshot().terminals.items() if n} == {"expired": 1}


def test_an_expired_id_cannot_be_used_again_while_the_engine_holds_it(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "a", deadline_ms=1000)
    released(scheduler)
    scheduler.step(1.0, QUIET)
    answer = scheduler.submit(Request(id="a", prompt_tokens=1, max_tokens=1, arrival_s=1.0), 1.0)
    assert isinstance(answer, Refused)
    assert answer.code is ErrorCode.INVALID
    end(scheduler, "a", 1.1)
    accept(scheduler, "a", 1.1)


def test_an_engine_that_reports_itself_empty_holds_nothing(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(max_batch_size=1)
    accept(scheduler, "a", deadline_ms=1000)
    released(scheduler)
    scheduler.step(1.0, QUIET)
    accept(scheduler, "b", 1.0)
    assert released(scheduler, 1.1, Signals(kv_free_blocks=38, kv_total_blocks=40, engine_running=1)) == []
    assert released(scheduler, 1.2, Signals(kv_free_blocks=40, kv_total_blocks=40, engine_running=0)) == ["b"]


@pytest.mark.parametrize("terminal", [Terminal.FINISHED, Terminal.CANCELLED, Terminal.FAILED])
def test_the_engines_end_is_counted_as_it_says(make_scheduler: Make, accept: Accept, terminal: Terminal) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "a")
    released(scheduler)
    end(scheduler, "a", terminal=terminal)
    end(scheduler, "a", terminal=Terminal.FINISHED)
    assert {k: n for k, n in scheduler.snapshot().terminals.items() if n} == {terminal.value: 1}


@pytest.mark.parametrize("terminal", [Terminal.EXPIRED, Terminal.REFUSED])
def test_an_engine_cannot_expire_or_refuse(make_scheduler: Make, terminal: Terminal) -> None:
    with pytest.raises(ValueError, match="cannot end a request as"):
        end(make_scheduler(), "a", terminal=terminal)


def test_ends_of_requests_that_do_not_run_are_ignored(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "queued")
    end(scheduler, "queued")
    end(scheduler, "unknown")
    first_token(scheduler, "queued")
    assert scheduler.next_deadline_s() is not None
    assert released(scheduler) == ["queued"]


def test_cancel_ends_what_waits_and_leaves_the_running_to_the_engine(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(max_batch_size=1)
    accept(scheduler, "running")
    released(scheduler)
    accept(scheduler, "queued")
    scheduler.offer("intake", prompt_bytes=1, request_class=None, now=0.0)
    assert [scheduler.cancel(id, 0.0) for id in ("intake", "queued", "running", "running", "unknown")] == [
        Phase.INTAKE,
        Phase.QUEUED,
        Phase.RUNNING,
        Phase.RUNNING,
        None,
    ]
    assert scheduler.cancel("queued", 0.0) is None
    assert scheduler.snapshot().terminals["cancelled"] == 2
    end(scheduler, "running", terminal=Terminal.CANCELLED)
    assert scheduler.snapshot().terminals["cancelled"] == 3
    assert scheduler.cancel("running", 0.0) is None


def test_a_running_request_that_was_cancelled_does_not_expire(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "a", deadline_ms=1000)
    released(scheduler)
    scheduler.cancel("a", 0.5)
    assert scheduler.step(9.0, QUIET) == ()
    scheduler.check_integrity()


def test_fail_ends_any_phase_once_and_frees_what_it_held(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(max_batch_size=1)
    accept(scheduler, "running")
    released(scheduler)
    accept(scheduler, "queued")
    scheduler.offer("intake", prompt_bytes=1, request_class=None, now=0.0)
    for id in ("running", "queued", "intake", "running", "queued", "intake", "unknown"):
        scheduler.fail(id, 0.0)
        scheduler.check_integrity()
    snapshot = scheduler.snapshot()
    assert snapshot.terminals["failed"] == 3
    assert (snapshot.running, snapshot.intake, snapshot.reserved_blocks) == (0, 0, 0)
    end(scheduler, "running")
    assert scheduler.snapshot().terminals["finished"] == 0


def test_an_expired_request_whose_engine_died_gives_back_its_place(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(max_batch_size=1)
    accept(scheduler, "a", deadline_ms=1000)
    released(scheduler)
    scheduler.step(1.0, QUIET)
    scheduler.fail("a", 1.1)
    accept(scheduler, "b", 1.2)
    assert released(scheduler, 1.2) == ["b"]
    assert scheduler.snapshot().terminals["failed"] == 0


def test_position_counts_everybody_who_goes_first(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(classes=TWO_CLASSES, max_batch_size=1)
    accept(scheduler, "o1", request_class="offline")
    accept(scheduler, "o2", request_class="offline")
    accept(scheduler, "i1")
    assert [scheduler.position(id) for id in ("i1", "o1", "o2", "unknown")] == [0, 1, 2, None]
    released(scheduler)
    assert [scheduler.position(id) for id in ("i1", "o1", "o2")] == [None, 0, 1]


def test_a_new_policy_rules_newcomers_and_drops_nobody(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler(classes=TWO_CLASSES, max_batch_size=1)
    accept(scheduler, "first")
    released(scheduler)
    for n in range(3):
        accept(scheduler, f"o{n}", request_class="offline")
        accept(scheduler, f"i{n}", prompt_tokens=20)
    new = Policy.from_data(
        {
            "name": "night",
            "kind": "fcfs",
            "default_class": "batch",
            "classes": {
                "batch": {"max_queue_requests": 1, "deadline_ms": 5000},
                "interactive": {"priority": 3, "max_queue_requests": 2, "deadline_ms": 5000},
            },
            "bucket_edges_tokens": [10],
        },
        "night",
    )
    scheduler.replace_policy(new)
    scheduler.check_integrity()
    snapshot = scheduler.snapshot()
    assert snapshot.policy_name == "night"
    assert snapshot.queued_by_class == {"batch": 0, "offline": 3, "interactive": 3}
    assert snapshot.queued_by_bucket == {"0-10": 3, "10+": 3}
    refused = scheduler.submit(Request(id="x", prompt_tokens=1, max_tokens=1, request_class="interactive"), 0.0)
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.OVERLOADED
    accept(scheduler, "b")
    order = []
    last = "first"
    while True:
        end(scheduler, last)
        got = released(scheduler)
        if not got:
            break
        order += got
        last = got[0]
    assert order == ["b", "o0", "o1", "o2", "i0", "i1", "i2"]
    scheduler.replace_policy(new)
    assert list(scheduler.snapshot().queued_by_class) == ["batch", "interactive"]


def test_every_refusal_is_counted_under_its_code(make_scheduler: Make) -> None:
    scheduler = make_scheduler(max_prompt_bytes=1)
    scheduler.offer("a", prompt_bytes=2, request_class=None, now=0.0)
    scheduler.offer("a", prompt_bytes=1, request_class="nobody", now=0.0)
    scheduler.offer("a", prompt_bytes=1, request_class=None, now=0.0)
    scheduler.submit(Request(id="a", prompt_tokens=0, max_tokens=1), 0.0)
    scheduler.check_integrity()
    snapshot = scheduler.snapshot()
    assert {code: n for code, n in snapshot.refused_by_code.items() if n} == {"too_large": 1, "invalid": 2}
    by_why: dict[str, int] = {}
    for (_, code, _), n in snapshot.refused_by_why.items():
        by_why[code] = by_why.get(code, 0) + n
    assert {code: n for code, n in by_why.items() if n} == {"too_large": 1, "invalid": 2}
    assert (snapshot.offered, snapshot.terminals["refused"], snapshot.intake) == (3, 3, 0)


def test_ends_are_counted_by_class_and_a_made_up_class_is_nobody_s(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "done")
    assert released(scheduler) == ["done"]
    end(scheduler, "done")
    scheduler.offer("x", prompt_bytes=1, request_class="made up by a client", now=0.0)
    scheduler.offer("y", prompt_bytes=1, request_class="offline", now=0.0)
    scheduler.reject("y", 0.0)  # its tokens turned out to be none
    scheduler.count_unreadable()
    scheduler.check_integrity()
    snapshot = scheduler.snapshot()
    assert {key: n for key, n in snapshot.ended_by_class.items() if n} == {
        ("interactive", "finished"): 1,
        ("offline", "refused"): 1,
        ("unknown", "refused"): 2,
    }
    assert {key: n for key, n in snapshot.refused_by_why.items() if n} == {
        ("offline", "invalid", "invalid"): 1,
        ("unknown", "invalid", "invalid"): 2,
    }
    assert snapshot.admitted_by_class == {"interactive": 1, "offline": 0}
    assert snapshot.terminals["failed"] == 0
    assert snapshot.ended_by_class["offline", "expired"] == 0, "a zero for a rate to rise from"


def test_the_same_calls_give_the_same_answers_byte_for_byte(make_scheduler: Make) -> None:
    def play() -> str:
        scheduler = make_scheduler(classes=TWO_CLASSES, max_batch_size=2)
        log: list[Any] = []
        for n in range(200):
            now = n * 0.1
            request = Request(
                id=str(n),
                prompt_tokens=1 + n * 7 % 30,
                max_tokens=1 + n % 9,
                request_class=("interactive", "offline")[n % 3 % 2],
                deadline_ms=700,
                arrival_s=now,
            )
            log.append(scheduler.submit(request, now))
            decisions = scheduler.step(now, QUIET)
            log.append(decisions)
            ends = tuple(End(id=d.id, terminal=Terminal.FINISHED) for d in decisions if int(d.id) % 4)
            scheduler.observe(StepReport(step_ms=1.0, ends=ends), now)
        return repr((log, scheduler.snapshot()))

    assert play() == play()


def test_integrity_names_both_sides_of_a_sum_that_is_off(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "a")
    released(scheduler)
    scheduler._reserve.used_blocks += 5
    with pytest.raises(IntegrityError, match="reserved blocks: the core has 7, it should be 2"):
        scheduler.check_integrity()


@pytest.mark.parametrize("kind", ["fcfs", "static", "seed", "paced"])
@pytest.mark.parametrize("before", ["fcfs", "paced"])
def test_a_policy_of_another_kind_drops_nobody_whose_class_it_lacks(
    make_scheduler: Callable[..., Scheduler], accept: Callable[..., Accepted], before: str, kind: str
) -> None:
    plain = {"max_queue_requests": 10, "deadline_ms": 60_000}
    classes = {"interactive": plain, "rare": {**plain, "priority": 1}}
    scheduler = make_scheduler(kind=before, classes=classes, max_batch_size=1)
    for n in range(3):
        accept(scheduler, f"r{n}", request_class="rare")
    data = {"kind": kind, "max_running": 1, "classes": {"interactive": plain}}
    scheduler.replace_policy(Policy.from_data(data, "test"))
    scheduler.check_integrity()
    assert scheduler.snapshot().queued_by_class["rare"] == 3
    accept(scheduler, "urgent")
    started = []
    for now in range(1, 5):
        for release in scheduler.step(float(now), Signals()):
            started.append(release.id)
            scheduler.observe(StepReport(step_ms=1.0, ends=(End(release.id, Terminal.FINISHED),)), float(now))
        scheduler.check_integrity()
    assert sorted(started) == ["r0", "r1", "r2", "urgent"]
