"""Who is taken and who is not: each refusal with its code, its field, both numbers, and a hint only where it helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, Phase, Refused, Request, Signals

Make = Callable[..., Scheduler]
Accept = Callable[..., Accepted]


def submit(scheduler: Scheduler, now: float = 0.0, **wishes: Any) -> Accepted | Refused:
    wishes = {"id": "r", "prompt_tokens": 4, "max_tokens": 4, "arrival_s": now, **wishes}
    answer = scheduler.submit(Request(**wishes), now)
    scheduler.check_integrity()
    return answer


@pytest.mark.parametrize(
    ("wishes", "policy", "code", "field", "words"),
    [
        ({"prompt_tokens": 0}, {}, ErrorCode.INVALID, "prompt", ["0 tokens"]),
        ({"prompt_tokens": 100}, {}, ErrorCode.TOO_LARGE, "prompt", ["100 tokens", "at most 99"]),
        ({"prompt_tokens": 60}, {"capacity_blocks": 15}, ErrorCode.TOO_LARGE, "prompt", ["60 tokens", "holds 60"]),
        ({"max_tokens": 0}, {}, ErrorCode.INVALID, "max_tokens", ["is 0", "at least 1"]),
        ({"max_tokens": -3}, {}, ErrorCode.INVALID, "max_tokens", ["is -3", "at least 1"]),
        ({"max_tokens": 97}, {"clamp_max_tokens": False}, ErrorCode.TOO_LARGE, "max_tokens", ["is 97", "leaves 96"]),
        ({"deadline_ms": 0}, {}, ErrorCode.INVALID, "deadline_ms", ["is 0", "at least 1"]),
        ({"request_class": "ofline"}, {}, ErrorCode.INVALID, "request_class", ["'ofline'", "mean offline?"]),
    ],
)
def test_what_can_never_be_served_is_refused_with_both_numbers_and_no_hint(
    make_scheduler: Make,
    wishes: dict[str, Any],
    policy: dict[str, Any],
    code: ErrorCode,
    field: str,
    words: list[str],
) -> None:
    answer = submit(make_scheduler(**policy), **wishes)
    assert isinstance(answer, Refused)
    assert (answer.code, answer.field, answer.retry_after_ms) == (code, field, None)
    assert all(word in answer.reason for word in words), answer.reason


@pytest.mark.parametrize(
    ("asked", "capacity_blocks", "given"),
    [
        (None, 40, 8),  # the policy's default
        (5, 40, 5),
        (1000, 40, 96),  # the sequence limit of 100
        (1000, 10, 36),  # the whole KV cache holds 40 tokens
        (None, 2, 4),
    ],
)
def test_max_tokens_is_lowered_to_what_the_limits_leave(
    make_scheduler: Make, asked: int | None, capacity_blocks: int, given: int
) -> None:
    answer = submit(make_scheduler(capacity_blocks=capacity_blocks), max_tokens=asked)
    assert answer == Accepted(id="r", max_tokens=given, request_class="interactive")


def test_the_default_is_lowered_even_where_an_asked_excess_would_be_refused(make_scheduler: Make) -> None:
    answer = submit(make_scheduler(clamp_max_tokens=False), prompt_tokens=95, max_tokens=None)
    assert answer == Accepted(id="r", max_tokens=5, request_class="interactive")


def test_a_released_request_fits_even_when_it_needs_the_whole_cache(make_scheduler: Make) -> None:
    scheduler = make_scheduler(capacity_blocks=10)
    submit(scheduler, max_tokens=1000)
    assert [d.id for d in scheduler.step(0.0, Signals())] == ["r"]


def test_a_smaller_cache_reported_by_the_engine_bounds_new_requests(make_scheduler: Make) -> None:
    scheduler = make_scheduler(capacity_blocks=40)
    scheduler.step(0.0, Signals(kv_total_blocks=5, kv_free_blocks=5))
    answer = submit(scheduler, prompt_tokens=20)
    assert isinstance(answer, Refused)
    assert answer.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("name", [None, ""])
def test_without_a_class_the_policys_default_is_taken(make_scheduler: Make, name: str | None) -> None:
    scheduler = make_scheduler(default_class="offline")
    submit(scheduler, request_class=name)
    assert scheduler.snapshot().queued_by_class == {"interactive": 0, "offline": 1}


def test_the_class_named_at_the_offer_holds_unless_submit_names_another(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    for id in "ab":
        assert scheduler.offer(id, prompt_bytes=1, request_class="offline", now=0.0) is None
    submit(scheduler, id="a")
    submit(scheduler, id="b", request_class="interactive")
    assert scheduler.snapshot().queued_by_class == {"interactive": 1, "offline": 1}


def test_a_huge_class_name_is_not_echoed(make_scheduler: Make) -> None:
    answer = make_scheduler().offer("r", prompt_bytes=1, request_class="x" * 10**6, now=0.0)
    assert answer is not None
    assert len(answer.reason) < 200


def test_a_full_queue_refuses_its_class_alone_and_says_when_to_come_back(make_scheduler: Make, accept: Accept) -> None:
    classes = {
        "interactive": {"max_queue_requests": 2, "deadline_ms": 1000},
        "offline": {"priority": 1, "max_queue_requests": 2, "deadline_ms": 1000},
    }
    scheduler = make_scheduler(classes=classes, retry_after_min_ms=10, retry_after_max_ms=5000)
    accept(scheduler, "a")
    accept(scheduler, "b")
    answer = submit(scheduler, id="c")
    assert isinstance(answer, Refused)
    assert answer.code is ErrorCode.OVERLOADED
    assert answer.retry_after_ms is not None
    assert 10 <= answer.retry_after_ms <= 5000
    assert "2 requests of class interactive" in answer.reason
    assert isinstance(submit(scheduler, id="d", request_class="offline"), Accepted)


def test_too_many_bytes_are_refused_before_tokenising(make_scheduler: Make) -> None:
    scheduler = make_scheduler(max_prompt_bytes=10)
    answer = scheduler.offer("r", prompt_bytes=11, request_class=None, now=0.0)
    assert answer is not None
    assert (answer.code, answer.retry_after_ms) == (ErrorCode.TOO_LARGE, None)
    assert "11 bytes" in answer.reason
    assert "at most 10" in answer.reason
    assert scheduler.offer("r", prompt_bytes=10, request_class=None, now=0.0) is None


def test_a_full_intake_refuses_but_for_probes(make_scheduler: Make) -> None:
    scheduler = make_scheduler(max_intake_requests=1)
    assert scheduler.offer("a", prompt_bytes=1, request_class=None, now=0.0) is None
    answer = scheduler.offer("b", prompt_bytes=1, request_class=None, now=0.0)
    assert answer is not None
    assert answer.code is ErrorCode.OVERLOADED
    assert answer.retry_after_ms is not None
    assert scheduler.offer("p", prompt_bytes=1, request_class=None, now=0.0, is_probe=True) is None
    scheduler.check_integrity()


def test_a_probe_passes_a_full_queue_and_goes_first(make_scheduler: Make, accept: Accept) -> None:
    classes = {
        "interactive": {"max_queue_requests": 1, "deadline_ms": 1000},
        "offline": {"priority": 1, "max_queue_requests": 1, "deadline_ms": 1000},
    }
    scheduler = make_scheduler(classes=classes, max_batch_size=1, default_class="offline")
    accept(scheduler, "a", request_class="interactive")
    accept(scheduler, "b", request_class="offline")
    accept(scheduler, "p", is_probe=True)
    assert [d.id for d in scheduler.step(0.0, Signals())] == ["p"]


def test_a_probe_obeys_the_limits(make_scheduler: Make) -> None:
    answer = submit(make_scheduler(), prompt_tokens=100, is_probe=True)
    assert isinstance(answer, Refused)


def test_a_request_whose_deadline_passed_in_intake_is_refused_as_expired(make_scheduler: Make) -> None:
    scheduler = make_scheduler()
    scheduler.offer("r", prompt_bytes=1, request_class=None, now=0.0)
    answer = submit(scheduler, now=2.0, arrival_s=0.0, deadline_ms=2000)
    assert isinstance(answer, Refused)
    assert answer.code is ErrorCode.EXPIRED
    assert answer.retry_after_ms is not None
    assert "2000 ms" in answer.reason


@pytest.mark.parametrize("phase", [Phase.INTAKE, Phase.QUEUED, Phase.RUNNING])
def test_an_id_that_is_alive_cannot_be_offered_again(make_scheduler: Make, accept: Accept, phase: Phase) -> None:
    scheduler = make_scheduler()
    if phase is Phase.INTAKE:
        scheduler.offer("r", prompt_bytes=1, request_class=None, now=0.0)
    elif phase is Phase.JOINED:
        scheduler.asides.join("r", 0.0)
    else:
        accept(scheduler, "r")
    if phase is Phase.RUNNING:
        scheduler.step(0.0, Signals())
    answer = scheduler.offer("r", prompt_bytes=1, request_class=None, now=0.0)
    assert answer is not None
    assert (answer.code, answer.field) == (ErrorCode.INVALID, "id")
    assert phase.value in answer.reason
    scheduler.check_integrity()
    assert scheduler.cancel("r", 0.0) is phase


def test_an_id_may_be_used_again_after_its_end(make_scheduler: Make, accept: Accept) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "r")
    scheduler.cancel("r", 0.0)
    accept(scheduler, "r")


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_draining_server_takes_probes_alone_and_serves_what_it_has(
    make_scheduler: Make, accept: Accept, by_signal: bool
) -> None:
    scheduler = make_scheduler()
    accept(scheduler, "a")
    scheduler.offer("b", prompt_bytes=1, request_class=None, now=0.0)
    if by_signal:
        assert [d.id for d in scheduler.step(0.0, Signals(is_draining=True))] == ["a"]
    else:
        scheduler.set_draining(0.0)
    refusals = [scheduler.offer("c", prompt_bytes=1, request_class=None, now=0.0), submit(scheduler, id="b")]
    for answer in refusals:
        assert isinstance(answer, Refused)
        assert answer.code is ErrorCode.NOT_SERVING
        assert answer.retry_after_ms is not None
    accept(scheduler, "p", is_probe=True)
    released = {d.id for d in scheduler.step(0.0, Signals())}
    assert released == ({"p"} if by_signal else {"a", "p"})


def test_a_hint_grows_with_the_line_and_shrinks_with_the_measured_rate(make_scheduler: Make) -> None:
    from seekserve_backend.core.types import End, StepReport, Terminal

    def hint_ms(ends_per_s: int) -> int:
        scheduler = make_scheduler(
            classes={"interactive": {"max_queue_requests": 50, "deadline_ms": 10**7}},
            retry_after_min_ms=1,
            retry_after_max_ms=10**7,
        )
        count = 0
        for n in range(600):
            now = n / ends_per_s
            submit(scheduler, now=now, id=f"warm{n}")
            for decision in scheduler.step(now, Signals()):
                end = End(id=decision.id, terminal=Terminal.FINISHED)
                scheduler.observe(StepReport(step_ms=1.0, ends=(end,)), now + 0.9 / ends_per_s)
        while isinstance(answer := submit(scheduler, now=600 / ends_per_s, id=f"q{count}"), Accepted):
            count += 1
        assert answer.retry_after_ms is not None
        return answer.retry_after_ms

    assert hint_ms(10) == pytest.approx(5100, rel=0.35)
    assert hint_ms(2) == pytest.approx(25_500, rel=0.35)
