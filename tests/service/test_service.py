"""The service with a real scheduler, real threads and engines that do what a test needs."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.service.fakes import BYTES, KV, LIMITS, RecordingSink, encode, engine_info, policy, service, synthetic

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.engines.port import (
    EndEvent,
    EndReason,
    Engine,
    EngineError,
    EngineRequest,
    EngineStepReport,
    Sampling,
    TokenEvent,
)
from seekserve_backend.engines.synthetic import SyntheticEngine
from seekserve_backend.service import Service


class ScriptedEngine(SyntheticEngine):
    """Says `script` byte by byte, then ends with STOP; `before_step` may raise or wait."""

    def __init__(self, script: bytes, before_step: Callable[[], None] = lambda: None) -> None:
        super().__init__(engine_info(), token_id=0, chunk_tokens=32)
        self._script = script
        self._said: dict[str, int] = {}
        self._before_step = before_step
        self.is_held = False
        """While true, steps produce nothing and only carry out cancels."""

    def add(self, request: EngineRequest) -> None:
        super().add(request)
        self._said[request.id] = 0

    def step(self, timeout_s: float) -> EngineStepReport:
        if self.is_held:
            threading.Event().wait(0.002)
            gone = [i for i in self._cancelled if self._remove(i)]
            self._cancelled.clear()
            ends = tuple(EndEvent(id=i, reason=EndReason.CANCELLED) for i in gone)
            return EngineStepReport(step_ms=0.0, batch_size=0, prefill_tokens=0, ends=ends)
        if self._running:
            self._before_step()
        report = super().step(timeout_s)
        tokens: list[TokenEvent] = []
        ended = list(report.ends)
        for event in report.tokens:
            at = self._said[event.id]
            if at < len(self._script):
                tokens.append(TokenEvent(id=event.id, token_ids=(self._script[at],)))
                self._said[event.id] = at + 1
            elif self._remove(event.id):
                ended.append(EndEvent(id=event.id, reason=EndReason.STOP))
        return EngineStepReport(
            step_ms=0.0, batch_size=report.batch_size, prefill_tokens=0, tokens=tuple(tokens), ends=tuple(ended)
        )


@contextmanager
def running(made: Service) -> Iterator[Service]:
    made.start()
    try:
        yield made
    finally:
        made.stop(timeout_s=5)
        made.check_integrity()
        counts = made.stats().snapshot
        assert counts.offered == sum(counts.terminals.values()), counts


def ask(made: Service, text: bytes = b"hello", **wishes: object) -> RecordingSink:
    sink = RecordingSink()
    made.accept(Inbound(text=text, **{"stream": True, "max_tokens": 5, **wishes}), sink)  # type: ignore[arg-type]
    return sink


def until(holds: Callable[[], bool]) -> None:
    """A thing that never comes fails its test instead of holding up all others."""
    for _ in range(2000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come to this in 20 s")


def fill_batch(made: Service) -> list[RecordingSink]:
    """One by one: on a busy machine four at once may meet a queue that holds three."""
    sinks: list[RecordingSink] = []
    for _ in range(LIMITS.max_batch_size):
        sinks.append(ask(made, max_tokens=60))
        until(lambda: made.stats().snapshot.running == len(sinks))
    return sinks


def finish_reason(sink: RecordingSink) -> str | None:
    assert isinstance(sink.last, Chunk), sink.last
    return sink.last.finish_reason


def error(sink: RecordingSink) -> ErrorLine:
    assert isinstance(sink.last, ErrorLine), sink.last
    return sink.last


def test_streams_every_piece_and_ends_inline_with_the_last() -> None:
    with running(service()) as made:
        sink = ask(made)
        assert finish_reason(sink) == "length"
    assert [a.text for a in sink.answers if isinstance(a, Chunk)] == ["a"] * 5
    last = sink.last
    assert isinstance(last, Chunk)
    assert (last.prompt_tokens, last.completion_tokens) == (5, 5)
    assert last.queue_ms is not None


def test_without_stream_there_is_one_response() -> None:
    with running(service()) as made:
        sink = ask(made, stream=False)
        assert finish_reason(sink) == "length"
    assert len(sink.answers) == 1
    assert sink.text == "aaaaa"


@pytest.mark.parametrize(("prompt", "state"), [(b"hi<think>\n", "thinking"), (b"hi</think>", "content")])
@pytest.mark.parametrize("stream", [True, False])
def test_the_first_answer_of_a_chat_says_where_it_begins(prompt: bytes, state: str, stream: bool) -> None:
    with running(service()) as made:
        sink = ask(made, text=prompt, messages=b"[]", stream=stream)  # the fake encoder reads the text
        assert finish_reason(sink) == "length"
        raw = ask(made)
        assert finish_reason(raw) == "length"
    states = [a.chat_state for a in sink.answers if isinstance(a, Chunk)]
    assert states == [state] + [None] * (len(states) - 1)
    assert [a.chat_state for a in raw.answers if isinstance(a, Chunk)] == [None] * 5


def test_echo_puts_the_prompt_in_front_once() -> None:
    with running(service()) as made:
        sink = ask(made, echo_prompt=True)
        assert finish_reason(sink) == "length"
    assert sink.text == "helloaaaaa"


def test_characters_and_stop_strings_across_tokens() -> None:
    script = "naïve 😀 stop here".encode()
    with running(service(lambda: ScriptedEngine(script))) as made:
        whole = ask(made, max_tokens=60)
        cut = ask(made, max_tokens=60, stop_words=("stop",))
        assert finish_reason(whole) == "stop"
        assert finish_reason(cut) == "stop"
    assert whole.text == "naïve 😀 stop here"
    assert cut.text == "naïve 😀 "
    assert all("\ufffd" not in a.text for a in whole.answers if isinstance(a, Chunk))


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        (b"bad", ErrorCode.INVALID, "text_input"),
        (b"crash", ErrorCode.FAILED, None),
        (b"x" * 128, ErrorCode.TOO_LARGE, None),
    ],
)
def test_bad_prompts_get_one_answer_each(text: bytes, code: ErrorCode, field: str | None) -> None:
    with running(service()) as made:
        line = error(ask(made, text=text))
    assert line.code is code
    assert field is None or line.field == field
    assert "fake encoder broke" not in line.reason, "internal errors are not echoed to clients"


def test_full_queue_is_refused_at_once_with_a_finite_hint() -> None:
    engine = ScriptedEngine(b"abc" * 20)
    engine.is_held = True
    with running(service(lambda: engine, with_policy=policy(max_queue_requests=3))) as made:
        sinks = fill_batch(made)
        sinks += [ask(made) for _ in range(20)]
        until(lambda: not made.stats().snapshot.intake)
        threading.Event().wait(0.1)
        refused = [s for s in sinks if s.done.is_set()]
        engine.is_held = False
        assert len(refused) == 17
        for sink in refused:
            assert error(sink).code is ErrorCode.OVERLOADED
            assert 1 <= (error(sink).retry_after_ms or 0) <= 60_000
        assert all(s.done.wait(10) for s in sinks)


def test_a_client_that_leaves_is_noticed_in_the_queue_and_while_running() -> None:
    engine = ScriptedEngine(b"abc" * 20)
    engine.is_held = True
    with running(service(lambda: engine)) as made:
        first = fill_batch(made)
        waiting = ask(made)
        waiting.has_left = first[0].has_left = True
        assert error(waiting).code is ErrorCode.CANCELLED
        assert error(first[0]).code is ErrorCode.CANCELLED
        engine.is_held = False
        assert [finish_reason(s) for s in first[1:]] == ["length"] * 3
        engine_stats = made.stats().engine
        assert engine_stats is not None
        assert engine_stats.kv_free_blocks == engine_stats.kv_total_blocks


def test_expiry_reaches_queued_and_running_requests() -> None:
    engine = ScriptedEngine(b"abc", before_step=lambda: (threading.Event().wait(0.1), None)[1])
    # `paced` would see it coming and refuse.
    with running(service(lambda: engine, with_policy=dataclasses.replace(policy(), kind="fcfs"))) as made:
        first = [ask(made, b"p" * 100, deadline_ms=250) for _ in range(4)]  # 4 prompts x 100 tokens, 32 in a step
        waiting = ask(made, deadline_ms=50)
        last = ask(made)
        assert error(waiting).code is ErrorCode.EXPIRED
        assert error(first[-1]).code is ErrorCode.EXPIRED
        assert finish_reason(last) == "stop"


def test_an_engine_that_raises_fails_its_requests_and_is_made_anew() -> None:
    made_engines: list[Engine] = []

    def fail_first() -> None:
        if len(made_engines) == 1:
            raise EngineError("the fake engine broke")

    def factory() -> Engine:
        made_engines.append(ScriptedEngine(b"ok", before_step=fail_first))
        return made_engines[-1]

    with running(service(factory)) as made:
        line = error(ask(made))
        assert line.code is ErrorCode.FAILED
        assert "fake engine broke" not in line.reason
        assert finish_reason(ask(made)) == "stop"
        assert made.stats().engine_restarts == 1


def test_an_engine_that_stays_broken_stops_the_service_from_taking_work() -> None:
    def always() -> None:
        raise EngineError("the fake engine is broken for good")

    with running(service(lambda: ScriptedEngine(b"", before_step=always))) as made:
        codes = [error(ask(made)).code for _ in range(6)]
        assert codes[0] is ErrorCode.FAILED
        assert codes[-1] is ErrorCode.NOT_SERVING
        assert made.stats().is_broken


def test_a_fault_in_one_answer_fails_that_request_alone() -> None:
    """Something that is no token id at all."""

    class Odd(ScriptedEngine):
        def step(self, timeout_s: float) -> EngineStepReport:
            report = super().step(timeout_s)
            tokens = tuple(
                dataclasses.replace(event, token_ids=(None,)) if self._is_odd(event.id) else event
                for event in report.tokens
            )
            return dataclasses.replace(report, tokens=tokens)

        def _is_odd(self, id: str) -> bool:
            entry = self._running.get(id)
            return entry is not None and entry.request.sampling.top_k == 3

    with running(service(lambda: Odd(b"fine"))) as made:
        good, bad = ask(made), ask(made, sampling=Sampling(top_k=3))
        assert finish_reason(good) == "length"
        assert error(bad).code is ErrorCode.FAILED
        assert made.stats().engine_restarts == 0


def test_a_fault_in_the_core_leaves_nobody_without_an_answer() -> None:
    made = service(lambda: ScriptedEngine(b"fine"))

    def broken(*_: object) -> None:
        raise RuntimeError("a bug in the core")

    made._desk.core.step = broken  # type: ignore[method-assign, assignment]
    made.start()
    try:
        assert error(ask(made)).code is ErrorCode.NOT_SERVING
        assert made.stats().is_broken
    finally:
        made.stop(timeout_s=1.0)


def test_stop_answers_everything_that_is_left() -> None:
    made = service(lambda: ScriptedEngine(b"abc", before_step=lambda: threading.Event().wait(0.2) and None))
    made.start()
    sinks = [ask(made) for _ in range(12)]
    made.stop(timeout_s=0.1)
    assert [s.terminals for s in sinks] == [1] * 12
    made.check_integrity()


def test_an_engine_that_cannot_be_closed_keeps_nobody_waiting() -> None:
    class Stuck(ScriptedEngine):
        def close(self) -> None:
            raise RuntimeError("a worker does not answer")

    made = service(lambda: Stuck(b"abc", before_step=lambda: threading.Event().wait(0.05) and None))
    made.start()
    sinks = [ask(made) for _ in range(12)]
    made.stop(timeout_s=5)
    assert [s.terminals for s in sinks] == [1] * 12
    made.check_integrity()


def test_a_storm_of_cancels_leaves_the_books_balanced() -> None:
    rng = random.Random(7)
    with running(service(synthetic)) as made:
        sinks = [ask(made, max_tokens=rng.randint(1, 60), stop_words=("aaaa",) if n % 3 else ()) for n in range(200)]
        for sink in sinks:
            sink.has_left = rng.random() < 0.5
        for sink in sinks:
            assert sink.done.wait(20)
    assert [s.terminals for s in sinks] == [1] * 200


def test_an_engine_that_does_not_take_one_request_fails_that_one_alone() -> None:
    class Picky(ScriptedEngine):
        def add(self, request: EngineRequest) -> None:
            if request.prompt_ids == tuple(b"big"):
                raise RuntimeError("no memory for this one")
            super().add(request)

    with running(service(lambda: Picky(b"ok"))) as made:
        sinks = [ask(made, text) for text in (b"one", b"big", b"two")]
        assert error(sinks[1]).code is ErrorCode.FAILED
        assert [finish_reason(s) for s in (sinks[0], sinks[2])] == ["stop", "stop"]
        assert made.stats().engine_restarts == 0


def test_a_request_that_the_core_chokes_on_still_gets_an_answer() -> None:
    with running(service()) as made:
        assert error(ask(made, deadline_ms=10**400)).code is ErrorCode.FAILED


def test_a_probe_of_a_broken_service_is_answered() -> None:
    def always() -> None:
        raise EngineError("broken for good")

    with running(service(lambda: ScriptedEngine(b"", before_step=always))) as made:
        while not made.stats().is_broken:
            error(ask(made))
        assert error(ask(made, is_probe=True)).code is ErrorCode.NOT_SERVING


def test_a_sink_that_cannot_be_asked_does_not_end_the_asking() -> None:
    class Unaskable(RecordingSink):
        def is_cancelled(self) -> bool:
            raise OSError("no inter-process call")

    engine = ScriptedEngine(b"abc")
    engine.is_held = True
    with running(service(lambda: engine)) as made:
        unaskable, leaver = Unaskable(), RecordingSink()
        for sink in (unaskable, leaver):
            made.accept(Inbound(text=b"hi", stream=True, max_tokens=5), sink)
        leaver.has_left = True
        assert error(leaver).code is ErrorCode.CANCELLED
        engine.is_held = False


@pytest.mark.parametrize("kind", ["fcfs", "paced"])
def test_on_an_engine_that_pauses_every_answer_is_whole(kind: str) -> None:
    """Four that come to 13 blocks each, in a cache of 24."""
    kv = dataclasses.replace(KV, capacity_blocks=24, may_pause=True)
    fullest = []

    class Watched(SyntheticEngine):
        def step(self, timeout_s: float) -> EngineStepReport:
            report = super().step(timeout_s)
            fullest.append(sum(entry.is_paused for entry in self._running.values()))
            return report

    # Nobody is refused, however long the wait looks in an engine that tells no times.
    rules = policy(deadline_ms=2**30)
    rules = dataclasses.replace(rules, kind=kind, paced=dataclasses.replace(rules.paced, start_output_tokens=1.0))
    made = Service(
        scheduler=Scheduler(rules, LIMITS, kv),
        policy=rules,
        engine_factory=lambda: Watched(engine_info(LIMITS, kv), token_id=ord("a"), chunk_tokens=32),
        encode=encode,
        vocabulary=BYTES,
    )
    with running(made):
        sinks = [ask(made, b"x" * 16, max_tokens=88) for _ in range(12)]
        assert [sink.last for sink in sinks if not isinstance(sink.last, Chunk)] == []
    assert {sink.text for sink in sinks} == {"a" * 88}
    assert kind == "paced" or max(fullest) > 0, (
        "first come first served has to be too much for it, else this shows nothing"
    )
