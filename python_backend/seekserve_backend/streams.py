"""Streams that outlive their connection: tokens for them, what a lost client leaves behind, and its return.

Triton tells a cancel from a lost connection as little as gRPC does, so both keep a resumable stream for its time; who
wants to cancel says so with the token (`resume_cancel`). A return is a request of its own that joins the work, and the
one that lost its client ends as cancelled: the books hold at every moment.
"""

from __future__ import annotations

import dataclasses
import secrets

from .answers import Chunk, InvalidInput
from .contract.policy import Policy
from .contract.refusal import ErrorCode, ErrorLine
from .core.types import Phase, Refused
from .desk import Desk, cancelled_line, refused_line
from .engine_loop import EngineLoop
from .live import AWAY, Live
from .outbox import Sink
from .record import Record
from .work import Work

__all__ = ["Streams"]

_UNKNOWN = "no stream of yours is kept under this token; it may have been too late, or it was given up"


class Streams:
    def __init__(self, desk: Desk, loop: EngineLoop) -> None:
        self._desk = desk
        self._loop = loop

    def grant(self, live: Live) -> None:
        """A token for a new stream; the lock is held."""
        live.token = secrets.token_urlsafe(24)
        self._desk.kept.grant(live.token, live.inbound.tenant, live)

    def left(self, live: Live) -> None:
        """The client of `live` is not there any more, whether it wanted that or not."""
        desk = self._desk
        with desk.cond:
            if live.is_closed or live.is_away or desk.live.get(live.id) is not live:
                return
            sink = live.sink
            if live.token is not None and live.has_token and live.work is not None:
                live.sink = AWAY
                desk.thrown_out += desk.kept.keep(live.token, live.work.size_bytes, desk.clock())
                line = _line(live, "the client cancelled or left; the stream is kept for a while and can be resumed")
            elif self._let_go(live):
                line = cancelled_line(live)
            else:
                return
        desk.outbox.send(live.lane, sink, line)
        self.let_go_thrown_out()

    def look(self) -> None:
        """Now and then: what nobody came for ends, what has grown is weighed."""
        desk = self._desk
        with desk.cond:
            now = desk.clock()
            desk.thrown_out += desk.kept.expire(now)
            for token, live in desk.kept.kept():
                if live.work is None:
                    continue
                desk.thrown_out += desk.kept.weigh(token, live.work.size_bytes)
                if live.work.can_pause and live.work.id in self._loop.in_engine:
                    self._pause_soon(live.work)
        self.let_go_thrown_out()

    def _pause_soon(self, work: Work) -> None:
        def pause() -> None:
            if self._loop.telling.pause(work):
                self._loop.cancel(work.id)

        self._loop.do(pause)

    def let_go_thrown_out(self) -> None:
        desk = self._desk
        with desk.cond:
            gone, desk.thrown_out = desk.thrown_out, ()
            for live in gone:
                if not live.is_closed and live.is_away and desk.live.get(live.id) is live:
                    self._let_go(live)

    def forget(self) -> None:
        """Nobody can come back any more: the server stops."""
        desk = self._desk
        with desk.cond:
            for token, live in desk.kept.kept():
                desk.kept.drop(token)
                desk.thrown_out += (live,)
        self.let_go_thrown_out()

    def forget_paused(self) -> None:
        """Another model takes over, which would not go on as the old one; the lock is held."""
        kept = self._desk.kept
        for token, live in kept.kept():
            if live.work is not None and live.work.is_paused:
                kept.drop(token)

    def replace_policy(self, policy: Policy) -> None:
        with self._desk.cond:
            self._desk.thrown_out += self._desk.kept.replace(policy.resume)
        self.let_go_thrown_out()

    def come_back(self, live: Live) -> None:
        """A request with a token instead of a prompt. Unless its work was paused it costs the engine nothing: nothing
        but the token is asked; it is taken while the server drains, too."""
        desk, inbound = self._desk, live.inbound
        farewells: list[tuple[Live, Sink, ErrorLine]] = []
        """Sent without the lock, which must not wait for a full lane."""
        last: Chunk | ErrorLine | None = None
        try:
            with desk.cond:
                found, work, record = self._find(live)
                live.request_class = found.request_class
                desk.core.asides.join(live.id, desk.clock(), request_class=live.request_class)
                desk.live[live.id] = live
                live.is_joined, live.work, live.chat_state = True, work, found.chat_state
                live.inbound = dataclasses.replace(
                    found.inbound, client_id=inbound.client_id, heartbeat_ms=inbound.heartbeat_ms
                )
                if inbound.resume_cancel:
                    farewells += self._give_up(found)
                    last = _given_up(work)
                    live.is_closed = True  # nobody else answers it meanwhile
                elif work.is_paused:
                    last = self._go_on(live, found, work)
                else:
                    farewells += self._take_over(live, found, work)
                    last = live.catch_up(record) if work.is_over else None  # the end of a record is always repeated
        except InvalidInput as error:
            line = ErrorLine(code=ErrorCode.INVALID, reason=error.reason, field=error.field, request_id=live.public_id)
            live.sink.error(live.error(line))
            return
        for other, sink, farewell in farewells:
            desk.outbox.send(other.lane, sink, farewell)
        if last is not None:
            desk.answer(live, last)
        self.let_go_thrown_out()

    def _find(self, live: Live) -> tuple[Live, Work, Record]:
        """Also the place from which it goes on. Raises InvalidInput, and the refusal is in the books."""
        desk, inbound = self._desk, live.inbound
        try:
            found = desk.kept.find(inbound.resume_token or "", inbound.tenant, desk.clock())
            work = None if found is None else found.work
            record = None if work is None else work.record
            if found is None or work is None or record is None:
                raise InvalidInput("resume_token", _UNKNOWN)
            if work.is_over and not (record.is_complete or work.is_paused):
                raise InvalidInput("resume_token", _UNKNOWN)
            try:
                live.place = record.place(inbound.resume_from_bytes)
            except ValueError as error:
                raise InvalidInput("resume_from_bytes", str(error)) from None
        except InvalidInput:
            desk.core.asides.refuse()
            raise
        return found, work, record

    def _take_over(self, live: Live, found: Live, work: Work) -> list[tuple[Live, Sink, ErrorLine]]:
        assert found.token is not None, "found by it"
        live.token, found.token = found.token, None
        self._desk.kept.resume(live.token, live)
        if work.is_over:
            return []
        work.lives = (*work.lives, live)
        self._loop.do(lambda: self._loop.telling.catch_up(live))
        if found.is_closed:
            return []
        sink = found.sink
        # One that has ended in the core is told so by whoever ends it.
        if not self._let_go(found) or sink is AWAY:
            return []
        return [(found, sink, _line(found, "this stream was resumed on another connection"))]

    def _go_on(self, live: Live, found: Live, work: Work) -> ErrorLine | None:
        """With paused work, which stands in the queue again; the refusal when it may not, and it stays kept."""
        desk = self._desk
        desk.core.asides.part(live.id)
        live.is_joined, live.work = False, work.continued(live.id)
        outcome = desk.core.submit(live.core_request(0), desk.clock(), is_at_door=True)
        if isinstance(outcome, Refused):
            return refused_line(live, outcome)
        live.work.granted_tokens = outcome.max_tokens
        desk.measures.admitted(live, None)
        self._take_over(live, found, work)
        desk.share(live.work, (live,))
        self._loop.do(lambda: self._loop.telling.catch_up(live))
        return None

    def _give_up(self, found: Live) -> list[tuple[Live, Sink, ErrorLine]]:
        if found.is_closed:
            assert found.token is not None, "found by it"
            self._desk.kept.drop(found.token)
            return []
        sink = found.sink
        # One that runs is answered with the End of the engine.
        return [(found, sink, cancelled_line(found))] if self._let_go(found) and sink is not AWAY else []

    def _let_go(self, live: Live) -> bool:
        """Ends it as cancelled; the lock is held. False when others answer it: it has ended, or an End will."""
        phase = self._desk.leave(live)
        if phase is Phase.RUNNING:
            self._loop.cancel(live.id)
        if phase in (None, Phase.RUNNING):
            return False
        live.is_closed = True
        return True


def _given_up(work: Work) -> Chunk:
    return Chunk(
        text="",
        completion_tokens=work.completion_tokens,
        finish_reason="cancelled",
        prompt_tokens=work.first_prompt_tokens,
    )


def _line(live: Live, reason: str) -> ErrorLine:
    return ErrorLine(code=ErrorCode.CANCELLED, reason=reason, request_id=live.public_id)
