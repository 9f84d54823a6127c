"""Requests that another model of the server answers while a rung of the pressure ladder says so.

Each has a thread of its own that reads the other model's answers and passes them on. Until the first of them is passed
on, whatever the other model says against the request brings it back here, to be admitted or refused as usual; after it
the request can only end. Who ends a request is the core's to say (`Routing.end`), so each gets one terminal answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from .answers import Chunk, Inbound
from .contract.refusal import ErrorCode, ErrorLine
from .core.types import Terminal
from .desk import Desk, failed_line
from .live import Live

__all__ = ["Handover", "VariantPort", "VariantStream"]

_log = logging.getLogger(__name__)
_MOST_REQUESTS = 128
_LOOK_S = 1.0
_FAULTS_IN_A_ROW = 3
_FAULT_PAUSE_S = 10.0
_FULL_PAUSE_S = 1.0


class VariantStream(Protocol):
    def __iter__(self) -> Iterator[Chunk | ErrorLine]:
        """Blocks between answers. May raise anything; an end without a terminal answer is a fault too."""
        ...

    def cancel(self) -> None:
        """Any thread, any time: the client has left. Ends the iteration."""
        ...


class VariantPort(Protocol):
    def open(self, model: str, inbound: Inbound, *, max_tokens: int, deadline_ms: int | None) -> VariantStream:
        """`deadline_ms` from now to the first token. Returns at once; may raise anything."""
        ...


class Handover:
    def __init__(
        self,
        desk: Desk,
        port: VariantPort | None,
        submit_here: Callable[[Live], ErrorLine | None],
        *,
        silence_s: float = 120.0,
    ) -> None:
        """`submit_here`: under the desk's lock, for a request that is in intake again; its answer where it is refused.
        `silence_s`: without an answer for so long, a call is given up."""
        self.ready: frozenset[str] = frozenset()
        """Models that can be routed to now; replaced as a whole, by whoever looks."""
        self._desk = desk
        self._port = port
        self._submit_here = submit_here
        self._silence_s = silence_s
        self._relays: dict[str, _Relay] = {}
        self._closed_until_s = 0.0
        self._faults_in_a_row = 0
        self._watch: threading.Thread | None = None
        self._stopping = threading.Event()

    def open_models(self) -> frozenset[str]:
        """Those that a request may be routed to now. Under the desk's lock."""
        is_open = len(self._relays) < _MOST_REQUESTS and self._desk.clock() >= self._closed_until_s
        return self.ready if is_open and self._port is not None else frozenset()

    def start(self, live: Live, model: str, max_tokens: int) -> None:
        """Under the desk's lock, for a request that the core has routed."""
        assert self._port is not None, "open_models says nothing without one"
        relay = self._relays[live.id] = _Relay(live, model, max_tokens, heard_s=self._desk.clock())
        if self._watch is None:
            self._watch = threading.Thread(target=self._look_for_silence, name="seekserve-handover", daemon=True)
            self._watch.start()
        # A daemon: nothing can wake one whose stream does not end.
        threading.Thread(
            target=self._run, args=(relay, self._port), name=f"seekserve-route-{live.id}", daemon=True
        ).start()

    def stop(self) -> None:
        """Nobody looks for silent calls any more; those that are open end with their requests."""
        self._stopping.set()

    def _run(self, relay: _Relay, port: VariantPort) -> None:
        live = relay.live
        try:
            problem: ErrorLine | str | None = self._pass_on(relay, port)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        finally:
            with self._desk.cond:
                del self._relays[live.id]
        try:
            if problem is None:
                self._faults_in_a_row = 0
            elif not live.is_closed:
                self._note(problem)
                self._end_badly(relay, problem)
        except Exception:
            _log.exception("request %s, routed to %s, could not be ended as it should", live.id, relay.model)
            self._desk.fail(live, ErrorCode.FAILED, failed_line(live).reason)

    def _pass_on(self, relay: _Relay, port: VariantPort) -> ErrorLine | str | None:
        """Reads the stream to its end; what went wrong, or None."""
        live, desk = relay.live, self._desk
        stream = port.open(
            relay.model, live.inbound, max_tokens=relay.max_tokens, deadline_ms=self._deadline_left_ms(live)
        )
        with desk.cond:
            live.hang_up = stream.cancel
            if live.is_closed:
                stream.cancel()
        for answer in stream:
            relay.heard_s = desk.clock()
            if relay.is_over or live.is_closed:
                continue  # to its end: a stream is not given up while its last response is on the way
            if isinstance(answer, ErrorLine):
                return answer
            if answer.finish_reason is not None:
                relay.is_over = True
                self._finish(relay, answer)
            else:
                if not relay.has_said:
                    relay.has_said = True
                    with desk.cond:
                        desk.core.routing.note_first(live.id)
                desk.outbox.send(live.lane, live.sink, answer)
        return None if relay.is_over else "its stream ended without a last answer"

    def _deadline_left_ms(self, live: Live) -> int | None:
        deadline_ms = live.inbound.deadline_ms
        if deadline_ms is None:
            return None
        return max(1, deadline_ms - round(1000.0 * (self._desk.clock() - live.arrival_s)))

    def _finish(self, relay: _Relay, last: Chunk) -> None:
        live, desk = relay.live, self._desk
        with desk.cond:
            if not desk.core.routing.end(live.id, Terminal.ROUTED):
                return
            # A call whose last response has come ends by itself: to cancel it now could meet that end.
            live.hang_up = None
            desk.live.pop(live.id, None)
        desk.answer(live, last)

    def _note(self, problem: ErrorLine | str) -> None:
        """A model that is full is left alone for a moment, one that fails time and again for longer."""
        now = self._desk.clock()
        if isinstance(problem, ErrorLine) and problem.code is ErrorCode.OVERLOADED:
            wait_s = min(_FULL_PAUSE_S, (problem.retry_after_ms or 0) / 1000.0)
            self._closed_until_s = max(self._closed_until_s, now + wait_s)
        elif isinstance(problem, str) or problem.code in (ErrorCode.FAILED, ErrorCode.NOT_SERVING):
            self._faults_in_a_row += 1
            if self._faults_in_a_row >= _FAULTS_IN_A_ROW:
                self._faults_in_a_row = 0
                self._closed_until_s = now + _FAULT_PAUSE_S

    def _end_badly(self, relay: _Relay, problem: ErrorLine | str) -> None:
        live, desk = relay.live, self._desk
        said = problem.reason if isinstance(problem, ErrorLine) else problem
        level = logging.INFO if isinstance(problem, ErrorLine) and problem.code.is_refusal else logging.WARNING
        _log.log(level, "request %s came back from %s: %s", live.id, relay.model, said)
        with desk.cond:
            live.hang_up = None
            if not relay.has_said:
                answer = self._submit_here(live) if desk.core.routing.take_back(live.id) else None
            elif desk.core.routing.end(live.id, Terminal.FAILED):
                desk.live.pop(live.id, None)
                answer = failed_line(live)
            else:
                answer = None
        if answer is not None:
            desk.answer(live, answer)

    def _look_for_silence(self) -> None:
        """Ends calls of which nothing has been heard for too long; their threads then do what is to be done."""
        while not self._stopping.wait(_LOOK_S):
            with self._desk.cond:
                now = self._desk.clock()
                silent = [each for each in self._relays.values() if now - each.heard_s > self._silence_s]
                for relay in silent:
                    if relay.live.hang_up is not None:
                        relay.live.hang_up()


class _Relay:
    """Fields change on the relay's own thread."""

    __slots__ = ("has_said", "heard_s", "is_over", "live", "max_tokens", "model")

    def __init__(self, live: Live, model: str, max_tokens: int, *, heard_s: float) -> None:
        self.live = live
        self.model = model
        self.max_tokens = max_tokens
        self.heard_s = heard_s
        self.has_said = False
        self.is_over = False
