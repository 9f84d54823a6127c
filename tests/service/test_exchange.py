"""The engine of a running service is replaced: what was accepted ends, what comes is told when to return."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.service.fakes import BYTES, KV, LIMITS, RecordingSink, encode, engine_info, service, synthetic
from tests.service.test_service import ScriptedEngine, ask, error, running, until

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.bundle import Limits
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.engines.port import Engine, EngineInfo
from seekserve_backend.exchange import Exchange, ExchangeState, Variant
from seekserve_backend.service import Service

SMALL = Limits(max_seq_len_tokens=16, max_batch_size=2, max_num_tokens=16, prefill_chunk_tokens=16)


def variant(
    make: Callable[[], Engine], *, limits: Limits = LIMITS, check: Callable[[EngineInfo], None] | None = None
) -> Variant:
    return Variant(
        bundle_dir="/new",
        limits=limits,
        kv=KV,
        step_model=None,
        engine_factory=make,
        encode=encode,
        vocabulary=BYTES,
        check=check or (lambda _info: None),
    )


def ended(wish: Exchange, made: Service) -> Exchange:
    until(lambda: wish.is_over and not made.stats().is_rebuilding)
    return wish


def broken() -> Engine:
    raise RuntimeError("no such weights")


def test_the_new_engine_answers_after_the_old_one_has_ended_what_it_had() -> None:
    old = ScriptedEngine(b"old")
    old.is_held = True
    with running(service(lambda: old)) as made:
        first = ask(made, max_tokens=3)
        until(lambda: made.stats().snapshot.running == 1)
        wish = made.exchange(variant(lambda: ScriptedEngine(b"new")), 60.0)
        line = error(ask(made))
        assert (line.code, first.done.is_set(), wish.state) == (ErrorCode.NOT_SERVING, False, ExchangeState.DRAINING)
        assert line.retry_after_ms is not None
        assert line.retry_after_ms > 0
        old.is_held = False
        assert isinstance(first.last, Chunk)
        assert ended(wish, made).state is ExchangeState.DONE
        second = ask(made, max_tokens=3)
        assert isinstance(second.last, Chunk)
        assert (first.text, second.text) == ("old", "new")
        assert made.stats().engine_restarts == 0


def test_the_limits_are_those_of_the_new_bundle() -> None:
    with running(service()) as made:
        wish = made.exchange(variant(lambda: synthetic(), limits=SMALL), 60.0)
        assert ended(wish, made).state is ExchangeState.DONE
        last = error(ask(made, b"a" * 20, max_tokens=1))
        assert last.code is ErrorCode.TOO_LARGE
        assert "sequence limit 16" in last.reason


def test_an_engine_that_cannot_be_made_brings_the_old_one_back() -> None:
    with running(service(lambda: ScriptedEngine(b"old"))) as made:
        wish = ended(made.exchange(variant(broken), 60.0), made)
        assert (wish.state, "no such weights" in wish.text) == (ExchangeState.FAILED, True)
        assert not made.stats().is_broken
        answer = ask(made, max_tokens=3)
        assert isinstance(answer.last, Chunk)
        assert answer.text == "old"


def test_an_engine_that_the_policy_does_not_fit_is_closed_again() -> None:
    def refuse(_info: EngineInfo) -> None:
        raise ValueError("rung 1 lowers speculation")

    with running(service(lambda: ScriptedEngine(b"old"))) as made:
        wish = ended(made.exchange(variant(synthetic, check=refuse), 60.0), made)
        assert (wish.state, "rung 1" in wish.text) == (ExchangeState.FAILED, True)
        assert isinstance(ask(made, max_tokens=3).last, Chunk)


def test_without_either_engine_the_service_says_that_it_is_broken() -> None:
    made_engines: list[Engine] = []

    def once() -> Engine:
        if made_engines:
            raise RuntimeError("memory is gone")
        made_engines.append(synthetic())
        return made_engines[0]

    with running(service(once)) as made:
        wish = ended(made.exchange(variant(broken), 60.0), made)
        assert wish.state is ExchangeState.FAILED
        assert made.stats().is_broken
        assert error(ask(made)).code is ErrorCode.NOT_SERVING


def test_at_the_deadline_what_still_runs_is_failed_with_the_time_to_come_back() -> None:
    old = ScriptedEngine(b"old")
    old.is_held = True
    with running(service(lambda: old)) as made:
        stuck = [ask(made, max_tokens=3) for _ in range(6)]  # four run, two wait
        until(lambda: made.stats().snapshot.running == 4)
        wish = ended(made.exchange(variant(lambda: ScriptedEngine(b"new")), 0.0), made)
        assert (wish.state, wish.failed_requests) == (ExchangeState.DONE, 6)
        for sink in stuck:
            last = error(sink)
            assert (last.code, sink.terminals) == (ErrorCode.NOT_SERVING, 1)
            assert last.retry_after_ms is not None
        answer = ask(made, max_tokens=3)
        assert isinstance(answer.last, Chunk)
        assert answer.text == "new"


def test_a_probe_passes_the_closed_door() -> None:
    old = ScriptedEngine(b"old")
    old.is_held = True
    gate = threading.Event()

    def slowly() -> Engine:
        gate.wait(10)
        return ScriptedEngine(b"new")

    with running(service(lambda: old)) as made:
        held = ask(made, max_tokens=3)
        until(lambda: made.stats().snapshot.running == 1)
        wish = made.exchange(variant(slowly), 60.0)
        assert error(ask(made)).code is ErrorCode.NOT_SERVING
        probe = RecordingSink()
        old.is_held = False
        until(lambda: wish.state is ExchangeState.LOADING)
        made.accept(Inbound(text=b"1", max_tokens=1, is_probe=True), probe)
        assert made.stats().is_rebuilding
        gate.set()
        assert isinstance(held.last, Chunk)
        assert isinstance(probe.last, Chunk)
        assert probe.text == "n"


@pytest.mark.parametrize("fails", [False, True])
def test_under_a_stream_of_requests_each_gets_one_answer(fails: bool) -> None:
    sinks: list[RecordingSink] = []
    stop = threading.Event()

    def ask_on(made: Service) -> None:
        while not stop.is_set():
            sinks.append(ask(made, max_tokens=4))
            stop.wait(0.001)

    with running(service(lambda: ScriptedEngine(b"old!"))) as made:
        threads = [threading.Thread(target=ask_on, args=(made,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        wish = made.exchange(variant(broken if fails else (lambda: ScriptedEngine(b"new!"))), 60.0)
        ended(wish, made)
        stop.set()
        for thread in threads:
            thread.join()
        for sink in sinks:
            last = sink.last
            if isinstance(last, ErrorLine):
                assert last.code is ErrorCode.NOT_SERVING
                assert last.retry_after_ms is not None
            else:
                assert sink.text in ("old!", "new!")
            assert sink.terminals == 1
        assert engine_info().kind == made.engine_info.kind
