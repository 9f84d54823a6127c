"""Requests that another model answers, a fake one here: each gets one terminal answer whatever that model does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.service.fakes import BYTES, KV, LIMITS, RecordingSink, encode, synthetic
from tests.service.test_service import ask, error, finish_reason, running, until

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.service import Service

FULL = ErrorLine(code=ErrorCode.OVERLOADED, reason="full", retry_after_ms=0)
Script = list[Any]


class Stream:
    """Says its script: chunks and errors are answers, an event is waited for, an exception is raised."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.cancelled = threading.Event()

    def __iter__(self) -> Iterator[Chunk | ErrorLine]:
        for each in self._script:
            if isinstance(each, threading.Event):
                until(lambda event=each: event.is_set() or self.cancelled.is_set())  # type: ignore[misc]
                if self.cancelled.is_set():
                    raise ConnectionError("the call was cancelled")
            elif isinstance(each, Exception):
                raise each
            else:
                yield each

    def cancel(self) -> None:
        self.cancelled.set()


class Port:
    def __init__(self, *scripts: Script) -> None:
        self.scripts: queue.SimpleQueue[Script] = queue.SimpleQueue()
        for script in scripts:
            self.scripts.put(script)
        self.calls: list[tuple[str, int, int | None]] = []
        self.streams: list[Stream] = []

    def open(self, model: str, inbound: Inbound, *, max_tokens: int, deadline_ms: int | None) -> Stream:
        self.calls.append((model, max_tokens, deadline_ms))
        self.streams.append(Stream(self.scripts.get_nowait()))
        return self.streams[-1]


def piece(text: str) -> Chunk:
    return Chunk(text=text, completion_tokens=1, served_by="int8")


def last(text: str = "!") -> Chunk:
    return Chunk(text=text, completion_tokens=2, finish_reason="stop", prompt_tokens=5, served_by="int8")


def routed(port: Port, **changes: Any) -> Service:
    policy = Policy.from_data(
        {
            "kind": "paced",
            "rungs": [{"at": 0.0, "route_to": "int8"}],
            "paced": {"rung_up_s": 0.0},
            "classes": {"interactive": {"max_queue_requests": 100, "deadline_ms": 60_000, **changes}},
        },
        "test",
    )
    made = Service(
        scheduler=Scheduler(policy, LIMITS, KV),
        engine_factory=synthetic,
        encode=encode,
        vocabulary=BYTES,
        variants=port,
    )
    made.handover.ready = frozenset({"int8"})
    return made


def on_the_rung(made: Service) -> None:
    until(lambda: made.stats().snapshot.gauges["rung"] == 1.0)


def served_by(sink: RecordingSink) -> list[str | None]:
    return [answer.served_by for answer in sink.answers if isinstance(answer, Chunk)]


def terminals(made: Service) -> dict[str, int]:
    return {kind: n for kind, n in made.stats().snapshot.terminals.items() if n}


def test_the_answers_of_the_other_model_are_passed_on() -> None:
    port = Port([piece("he"), piece("y"), last()])
    with running(routed(port)) as made:
        on_the_rung(made)
        sink = ask(made, deadline_ms=50_000)
        assert finish_reason(sink) == "stop"
        until(lambda: terminals(made) == {"routed": 1})
    assert sink.text == "hey!"
    assert served_by(sink) == ["int8"] * 3
    ((model, max_tokens, deadline_ms),) = port.calls
    assert (model, max_tokens) == ("int8", 5)
    assert deadline_ms is not None
    assert 0 < deadline_ms <= 50_000
    assert not port.streams[0].cancelled.is_set(), "a call that ended by itself is not cancelled"


@pytest.mark.parametrize(
    "script",
    [
        [FULL],
        [ErrorLine(code=ErrorCode.INVALID, reason="no such class", field="request_class")],
        [RuntimeError("the server is gone")],
        [],
    ],
)
def test_what_the_other_model_does_not_take_is_served_here(script: Script) -> None:
    with running(routed(Port(script))) as made:
        on_the_rung(made)
        sink = ask(made)
        assert finish_reason(sink) == "length"
        until(lambda: terminals(made) == {"finished": 1})
        assert made.stats().snapshot.gauges["routes_taken_back"] == 1
    assert served_by(sink)[-1] is None


def test_one_that_comes_back_is_judged_as_usual() -> None:
    held = threading.Event()
    port = Port([held, FULL])
    with running(routed(port)) as made:
        on_the_rung(made)
        sink = ask(made)
        until(lambda: made.stats().snapshot.routed == 1)
        made._desk.drain()
        held.set()
        assert error(sink).code is ErrorCode.NOT_SERVING
    assert sink.terminals == 1


@pytest.mark.parametrize("broken", [RuntimeError("gone"), FULL, None])
def test_after_the_first_piece_it_can_only_fail(broken: Any) -> None:
    with running(routed(Port([piece("a")] + ([] if broken is None else [broken])))) as made:
        on_the_rung(made)
        sink = ask(made)
        assert error(sink).code is ErrorCode.FAILED
        assert "gone" not in error(sink).reason
        until(lambda: terminals(made) == {"failed": 1})
    assert (sink.text, sink.terminals) == ("a", 1)


def test_a_client_that_leaves_takes_the_call_along() -> None:
    port = Port([piece("a"), threading.Event(), last()])
    with running(routed(port)) as made:
        on_the_rung(made)
        sink = ask(made)
        until(lambda: sink.text == "a")
        sink.has_left = True
        assert error(sink).code is ErrorCode.CANCELLED
        assert port.streams[0].cancelled.wait(10)
        until(lambda: terminals(made) == {"cancelled": 1})
    assert sink.terminals == 1


def test_a_model_that_says_nothing_does_not_outlive_the_deadline() -> None:
    port = Port([threading.Event(), last()])
    with running(routed(port, deadline_ms=100)) as made:
        on_the_rung(made)
        sink = ask(made)
        assert error(sink).code is ErrorCode.EXPIRED
        assert port.streams[0].cancelled.wait(10)
    assert sink.terminals == 1


def test_a_call_that_falls_silent_is_given_up_and_the_request_served_here() -> None:
    port = Port([threading.Event(), last()])
    made = routed(port)
    made.handover._silence_s = 0.01
    with running(made):
        on_the_rung(made)
        assert finish_reason(ask(made)) == "length"
        assert port.streams[0].cancelled.is_set()


def test_stopping_answers_what_is_still_routed() -> None:
    port = Port([piece("a"), threading.Event()])
    made = routed(port)
    made.start()
    on_the_rung(made)
    sink = ask(made)
    until(lambda: sink.text == "a")
    made.stop(timeout_s=0.1)
    assert error(sink).code is ErrorCode.NOT_SERVING
    made.check_integrity()


def test_a_model_that_fails_time_and_again_is_left_alone() -> None:
    port = Port(*[[RuntimeError("gone")] for _ in range(3)])
    with running(routed(port)) as made:
        on_the_rung(made)
        for _ in range(5):
            assert finish_reason(ask(made)) == "length"
    assert len(port.calls) == 3


@pytest.mark.parametrize(
    "wishes", [{"is_routed": True}, {"is_probe": True}], ids=["already routed once", "readiness probe"]
)
def test_some_are_never_routed(wishes: dict[str, Any]) -> None:
    port = Port()
    with running(routed(port)) as made:
        on_the_rung(made)
        assert finish_reason(ask(made, **wishes)) == "length"
    assert port.calls == []


def test_a_model_that_is_not_ready_is_not_asked() -> None:
    port = Port()
    made = routed(port)
    made.handover.ready = frozenset()
    with running(made):
        on_the_rung(made)
        assert finish_reason(ask(made)) == "length"
    assert port.calls == []


def test_many_at_once_and_half_of_them_leaving() -> None:
    def script(number: int) -> Script:
        return [piece("a"), last()] if number % 3 else [FULL]

    port = Port(*(script(number) for number in range(60)))
    with running(routed(port)) as made:
        on_the_rung(made)
        sinks = [ask(made) for _ in range(60)]
        for sink in sinks[::2]:
            sink.has_left = True
        for sink in sinks:
            assert sink.last is not None
    assert [sink.terminals for sink in sinks] == [1] * 60
