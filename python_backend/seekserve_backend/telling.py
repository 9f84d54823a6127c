"""From one piece of an answer to everybody who listens to it, and the ways in which an answer ends.

Of the engine loop's thread alone: what is told here leaves with the loop's next flush of the outbox.
"""

from __future__ import annotations

from .answers import Chunk
from .contract.refusal import ErrorLine
from .core.types import Expire
from .desk import Desk, cancelled_line, expired_line, failed_line, refused_line
from .live import Live
from .record import Piece
from .work import Work

__all__ = ["Telling"]


class Telling:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def spread(self, work: Work, piece: Piece) -> None:
        """A piece in mid-stream."""
        record, put = work.record, self._desk.outbox.put
        if record is not None:
            record.add(piece)
        for live in work.lives:
            chunk = live.chunk(piece) if record is None else live.catch_up(record)
            if chunk is not None:
                put(live.lane, live.sink, chunk)

    def finish(self, work: Work, piece: Piece) -> None:
        """The last piece."""
        if work.record is not None:
            work.record.add(piece)
        for live in self._desk.close(work, piece):
            chunk = live.chunk(piece) if work.record is None else live.catch_up(work.record)
            assert chunk is not None, "a last piece is always a response"
            self._answer(live, chunk)

    def catch_up(self, live: Live) -> None:
        """For one who came late: all that was said before."""
        work = live.work
        if live.is_closed or work is None or work.record is None:
            return
        chunk = live.catch_up(work.record)
        if chunk is not None:
            self._desk.outbox.put(live.lane, live.sink, chunk)

    def pause(self, work: Work) -> bool:
        """Stops work whose only client is away; False when it is over, or the client is back."""
        desk = self._desk
        with desk.cond:
            if work.is_over or not work.can_pause or not all(live.is_away for live in work.lives):
                return False
            work.is_paused = True
            for live in desk.close(work):
                desk.live.pop(live.id, None)
            return True

    def fail(self, work: Work) -> None:
        for live in self._desk.close(work):
            self._answer(live, failed_line(live))

    def fail_rest(self, work: Work) -> None:
        """Those whom a fault in the middle of telling has left without an answer."""
        desk = self._desk
        with desk.cond:
            left = [live for live in desk.close(work) if desk.live.get(live.id) is live]
        for live in left:
            self._answer(live, failed_line(live))

    def cancelled(self, work: Work) -> None:
        for live in self._desk.close(work):
            self._answer(live, cancelled_line(live))

    def expire(self, decision: Expire) -> None:
        """Of all who listen only the one that came first: the others may wait longer."""
        live = self._desk.live.get(decision.id)
        if live is None or live.work is None:
            return
        others = tuple(other for other in self._desk.close(live.work) if other is not live)
        self._answer(live, expired_line(live, decision))
        for other, refused in self._desk.part(others):
            self._answer(other, refused_line(other, refused))

    def _answer(self, live: Live, terminal: Chunk | ErrorLine) -> None:
        self._desk.answer(live, terminal, is_collected=True)
