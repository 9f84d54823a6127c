"""Equal requests run the engine once: in flight they join, later they hit; nobody sees what is not theirs."""

from __future__ import annotations

import random

import pytest
from tests.service.fakes import RecordingSink, service
from tests.service.sharing_world import SCRIPT, CountingEngine, with_options
from tests.service.test_service import ask, error, finish_reason, running, until

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.contract.stream_options import RepeatCacheOptions
from seekserve_backend.engines.port import Sampling
from seekserve_backend.service import Service

TEXT = SCRIPT.decode()
LONG: dict[str, object] = {"max_tokens": 60}


def figures(made: Service) -> dict[str, float]:
    return dict(made.stats().sharing)


def held_at(tokens: int, **options: bool) -> CountingEngine:
    engine = CountingEngine(**options)
    engine.pause_at = tokens
    return engine


def test_a_request_that_equals_one_in_flight_gets_all_of_its_answer_and_the_engine_runs_once() -> None:
    engine = held_at(9)
    with running(service(lambda: engine, with_policy=with_options())) as made:
        first = ask(made, **LONG)
        until(lambda: engine.is_held)
        streamed, at_once = ask(made, **LONG), ask(made, **LONG)
        until(lambda: made.stats().snapshot.joined == 2)
        until(lambda: streamed.text == first.text != "")
        engine.go_on()
        assert [finish_reason(sink) for sink in (first, streamed, at_once)] == ["stop"] * 3
        until(lambda: made.stats().snapshot.terminals["finished"] == 3)
        assert first.text == streamed.text == at_once.text == TEXT
        assert len(engine.added) == 1
        assert figures(made)["repeat_joins"] == 2
        last = streamed.last
        assert isinstance(last, Chunk)
        assert (last.prompt_tokens, last.completion_tokens) == (5, len(SCRIPT))
        assert last.queue_ms is not None


def test_a_later_one_hits_without_a_step_and_with_its_own_wishes() -> None:
    engine = CountingEngine()
    with running(service(lambda: engine, with_policy=with_options())) as made:
        first = ask(made, **LONG)
        assert finish_reason(first) == "stop"
        until(lambda: figures(made)["repeat_results"] == 1)
        again = ask(made, **LONG, stream=False, echo_prompt=True, wants_num_output_tokens=True)
        assert finish_reason(again) == "stop"
        assert (again.text, len(again.answers)) == ("hello" + TEXT, 1)
        last = again.last
        assert isinstance(last, Chunk)
        assert last.num_output_tokens == len(SCRIPT)
        assert len(engine.added) == 1
        assert figures(made)["repeat_hits"] == 1
        assert 0 < figures(made)["repeat_bytes"] < 2000


@pytest.mark.parametrize(
    "other",
    [
        {"text": b"hellO"},
        {"max_tokens": 59},
        {"stop_words": ("so",)},
        {"end_id": 3},
        {"tenant": "b"},
        {"sampling": Sampling(repetition_penalty=1.5)},
        {"sampling": Sampling(min_tokens=1)},
        {"sampling": Sampling(temperature=0.5)},
        {"sampling": Sampling(temperature=0.5, seed=3)},
        {"is_probe": True},
    ],
    ids=str,
)
def test_whatever_shapes_the_answer_or_says_whose_it_is_makes_another(other: dict[str, object]) -> None:
    engine = CountingEngine()
    with running(service(lambda: engine, with_policy=with_options())) as made:
        for _ in range(2):
            for wishes in ({}, other):
                assert isinstance(ask(made, **{**LONG, **wishes}).last, Chunk)
                until(lambda: made.stats().snapshot.running == 0)
        hits = figures(made)["repeat_hits"]
        is_shared = "sampling" not in other or other["sampling"].temperature == 0  # type: ignore[attr-defined]
        assert hits == (2 if is_shared and "is_probe" not in other else 1)
        assert len(engine.added) == 4 - hits


def test_seeds_are_shared_where_the_engine_repeats_them() -> None:
    engine = CountingEngine(repeats_seeds=True)
    with running(service(lambda: engine, with_policy=with_options())) as made:
        for seed in (1, 2, 1, None, None):
            assert isinstance(ask(made, **LONG, sampling=Sampling(temperature=0.5, seed=seed)).last, Chunk)
            until(lambda: made.stats().snapshot.running == 0)
        assert len(engine.added) == 4


def test_tenants_share_only_where_the_policy_says_so() -> None:
    for across, runs in ((False, 2), (True, 1)):
        engine = CountingEngine()
        options = RepeatCacheOptions(enabled=True, across_tenants=across)
        with running(service(lambda: engine, with_policy=with_options(options))) as made:  # noqa: B023
            for tenant in ("a", "b"):
                assert isinstance(ask(made, **LONG, tenant=tenant).last, Chunk)
                until(lambda: made.stats().snapshot.running == 0)
            assert len(engine.added) == runs


@pytest.mark.parametrize("leaver", [0, 1])
@pytest.mark.parametrize("is_queued", [False, True])
def test_one_that_cancels_leaves_the_other_alone(leaver: int, is_queued: bool) -> None:
    engine = held_at(9)
    with running(service(lambda: engine, with_policy=with_options())) as made:
        if is_queued:
            fillers = [ask(made, text=bytes([65 + n]), **LONG) for n in range(4)]
            until(lambda: made.stats().snapshot.running == 4)
        both = [ask(made, **LONG)]
        until(lambda: made.stats().snapshot.intake == 0)
        both.append(ask(made, **LONG))
        until(lambda: made.stats().snapshot.joined == 1)
        both[leaver].has_left = True
        assert error(both[leaver]).code is ErrorCode.CANCELLED
        engine.go_on()
        assert finish_reason(both[1 - leaver]) == "stop"
        assert both[1 - leaver].text == TEXT
        if is_queued:
            assert [finish_reason(sink) for sink in fillers] == ["stop"] * 4
        until(lambda: made.stats().snapshot.running == 0)
        assert made.stats().snapshot.terminals["cancelled"] == 1


def test_the_last_one_to_leave_cancels_the_work_and_nobody_joins_it_after() -> None:
    engine = held_at(9)
    with running(service(lambda: engine, with_policy=with_options())) as made:
        first = ask(made, **LONG)
        until(lambda: engine.is_held)
        second = ask(made, **LONG)
        until(lambda: made.stats().snapshot.joined == 1)
        for sink in (first, second):
            sink.has_left = True
            assert error(sink).code is ErrorCode.CANCELLED
        until(lambda: made.stats().snapshot.running == 0)
        engine.go_on()
        third = ask(made, **LONG)
        assert finish_reason(third) == "stop"
        assert third.text == TEXT
        assert len(engine.added) == 2
        assert made.stats().snapshot.terminals["cancelled"] == 2


def test_who_joined_may_wait_until_its_own_deadline() -> None:
    engine = held_at(0)
    with running(service(lambda: engine, with_policy=with_options(deadline_ms=400))) as made:
        first = ask(made, **LONG)
        until(lambda: made.stats().snapshot.running == 1)
        engine.is_held = True
        assert not first.done.wait(0.2)
        second = ask(made, **LONG)
        until(lambda: made.stats().snapshot.joined == 1)
        assert error(first).code is ErrorCode.EXPIRED
        engine.go_on()
        # It got work of its own, and either was in time or was told so by itself.
        assert isinstance(second.last, Chunk) or error(second).code is ErrorCode.EXPIRED
        assert second.terminals == 1


def test_a_failure_of_the_engine_fails_all_who_listen() -> None:
    class Dying(CountingEngine):
        def step(self, timeout_s: float):  # type: ignore[no-untyped-def]
            if self.added and self.pause_at is None:
                raise RuntimeError("gone")
            return super().step(timeout_s)

    engine = Dying()
    engine.pause_at = 3
    with running(service(lambda: engine, with_policy=with_options())) as made:
        sinks = [ask(made, **LONG)]
        until(lambda: engine.is_held)
        sinks += [ask(made, **LONG), ask(made, **LONG)]
        until(lambda: made.stats().snapshot.joined == 2)
        engine.go_on()
        assert [error(sink).code for sink in sinks] == [ErrorCode.FAILED] * 3


def test_another_policy_forgets_what_was_kept_and_may_switch_it_off() -> None:
    engine = CountingEngine()
    with running(service(lambda: engine, with_policy=with_options())) as made:
        for new in (with_options(), Policy(), with_options()):
            for _ in range(2):
                assert isinstance(ask(made, **LONG).last, Chunk)
                until(lambda: made.stats().snapshot.running == 0)
            made.replace_policy(new)
        assert len(engine.added) == 1 + 1 + 2
        assert figures(made)["repeat_results"] == 0


def test_no_more_than_the_policy_says_share_one_run() -> None:
    engine = held_at(5)
    options = RepeatCacheOptions(enabled=True, max_joined=2)
    with running(service(lambda: engine, with_policy=with_options(options))) as made:
        first = ask(made, **LONG)
        until(lambda: engine.is_held)
        others = [ask(made, **LONG) for _ in range(2)]
        until(lambda: made.stats().snapshot.joined == 1 and made.stats().snapshot.running == 2)
        engine.go_on()
        assert {sink.text for sink in (first, *others) if finish_reason(sink)} == {TEXT}


def test_a_storm_of_equal_requests_and_cancels_leaves_the_books_balanced() -> None:
    rng = random.Random(5)
    with running(service(CountingEngine, with_policy=with_options())) as made:
        sinks = []
        for n in range(300):
            sink = RecordingSink()
            sink.has_left = rng.random() < 0.4
            prompt = bytes([97 + rng.randint(0, 2)])
            made.accept(Inbound(text=prompt, stream=True, max_tokens=30, deadline_ms=rng.choice([None, 40])), sink)
            sinks.append(sink)
            if n % 50 == 49:
                made.replace_policy(with_options(RepeatCacheOptions(enabled=True, max_joined=rng.randint(1, 9))))
        for sink in sinks:
            assert sink.last is not None
            assert sink.terminals == 1
            if isinstance(sink.last, Chunk):
                assert TEXT.startswith(sink.text)
                assert sink.text
