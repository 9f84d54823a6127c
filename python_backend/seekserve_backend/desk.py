"""The requests that are open, the core behind its one lock, and how a terminal answer leaves.

Whoever ends a request does it here, so that each gets exactly one terminal answer, whichever of engine, tokeniser,
poller and shutdown comes first. `core` is touched only while `cond` is held.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping

from .answers import Chunk
from .contract.policy import Policy
from .contract.refusal import ErrorCode, ErrorLine
from .core.kept import KeptStreams
from .core.repeats import Repeats
from .core.scheduler import Scheduler
from .core.types import End, Expire, Phase, Refused, StepReport, Terminal
from .live import Live
from .measures import Measures
from .openings import told
from .outbox import Outbox
from .record import Piece
from .work import Work

__all__ = ["Desk", "cancelled_line", "expired_line", "failed_line", "refused_line"]


_OPENINGS_KEPT = 8
_NO_WORKS: Mapping[str, Work] = {}


class Desk:
    def __init__(self, core: Scheduler, outbox: Outbox, clock: Callable[[], float], policy: Policy) -> None:
        self.core = core
        self.repeats: Repeats[Work, Piece] = Repeats(policy.repeat_cache)
        self.kept: KeptStreams[Live] = KeptStreams(policy.resume)
        self.outbox = outbox
        self.clock = clock
        self.cond = threading.Condition()
        self.live: dict[str, Live] = {}
        self.thrown_out: tuple[Live, ...] = ()
        """Kept streams that had to go; whoever looks after departures lets them go."""
        self.measures = Measures()
        self.openings: deque[tuple[float, dict[str, object]]] = deque(maxlen=_OPENINGS_KEPT)
        """(when, what there is to tell) of the breaker's openings that nobody has taken yet."""

    def answer(self, live: Live, terminal: Chunk | ErrorLine, *, is_collected: bool = False) -> None:
        """Sends the terminal answer. The caller has told the core, or is about to.

        `is_collected`: of the engine loop, whose answers leave in order with the pieces of the same step.
        """
        live.is_closed = True
        if isinstance(terminal, Chunk):
            self.measures.finished(live, self.clock())
        (self.outbox.put if is_collected else self.outbox.send)(live.lane, live.sink, terminal)
        with self.cond:
            self.live.pop(live.id, None)
            if live.is_joined:
                live.is_joined = False
                self.core.asides.settle(live.id, _terminal_of(terminal))
            if live.token is not None:
                self._keep_or_forget(live, live.token, is_good=isinstance(terminal, Chunk))
            hang_up, live.hang_up = live.hang_up, None
        if hang_up is not None:
            hang_up()

    def _keep_or_forget(self, live: Live, token: str, *, is_good: bool) -> None:
        """A good answer can be fetched again for a while: whether it arrived is not known here."""
        if not is_good or live.work is None:
            self.kept.drop(token)
            return
        # What goes for it may still be at work: it ends as one whose client left, when the departures are next told.
        self.thrown_out += self.kept.keep(token, live.work.size_bytes, self.clock())

    def close(self, work: Work, answer: Piece | None = None) -> tuple[Live, ...]:
        """Nothing that the engine still says about it counts. Returns those who must have an answer from the caller.

        `answer`: the last piece, of a record that holds all of it; then equal requests may have it too.
        """
        with self.cond:
            work.is_over = True
            if work.key is not None:
                is_known = self.repeats.work(work.key) is work
                self.repeats.leave(work.key, work)
                if answer is not None and is_known and work.is_whole and work.record is not None:
                    whole = work.record.whole()
                    self.repeats.keep(work.key, whole, whole.size_bytes, self.clock())
            for live in work.lives:
                live.is_closed = True
            return work.lives

    def part(self, lives: tuple[Live, ...]) -> list[tuple[Live, Refused]]:
        """Those who had joined work that is gone get work of their own, shared among them, in the order in which they
        came. Returns who is refused; the caller answers them."""
        refused = []
        with self.cond:
            for n, live in enumerate(lives):
                assert live.work is not None
                work = live.work.again(live.id)
                self.core.asides.part(live.id)
                live.is_joined, live.work = False, work
                outcome = self.core.submit(live.core_request(0), self.clock())
                if isinstance(outcome, Refused):
                    refused.append((live, outcome))
                    continue
                work.granted_tokens = outcome.max_tokens
                live.request_class = outcome.request_class
                self.measures.admitted(live, None)
                self.share(work, lives[n:])
                break
            self.cond.notify_all()
        return refused

    def share(self, work: Work, lives: tuple[Live, ...]) -> None:
        """Its listeners from now on; equal requests find it."""
        for live in lives:
            live.work, live.is_closed = work, False
        work.lives = lives
        if work.key is not None:
            self.repeats.lead(work.key, work)

    def leave(self, live: Live) -> Phase | None:
        """Its client is gone for good. The lock is held. JOINED: the work goes on for others. RUNNING: the engine has
        to be told, and its End brings the answer. None: it has ended already, and the answer is on its way. Otherwise
        it is out of the books now and the caller answers it."""
        work = live.work
        if live.token is not None:
            self.kept.drop(live.token)
        others = () if work is None else tuple(other for other in work.lives if other is not live)
        if not live.is_joined and not self.core.asides.is_open(live.id):
            return None
        if work is None or not others:
            return self._abandon(live, work)
        if not live.is_joined:
            self._hand_over(live, next((other for other in others if not other.is_away), others[0]))
        work.lives = others
        self.core.cancel(live.id, self.clock())
        live.is_joined = False
        del self.live[live.id]
        return Phase.JOINED

    def _abandon(self, live: Live, work: Work | None) -> Phase | None:
        phase = self.core.cancel(live.id, self.clock())
        if work is not None and work.key is not None:
            self.repeats.leave(work.key, work)
        if phase not in (None, Phase.RUNNING):
            if work is not None:
                work.is_over = True
            if live.hang_up is not None:
                live.hang_up()
            del self.live[live.id]
        return phase

    def _hand_over(self, live: Live, heir: Live) -> None:
        """The place in the queue or the engine goes to one who joined, and with it the entry in the books and what was
        measured of it so far."""
        live.id, heir.id = heir.id, live.id
        live.is_joined, heir.is_joined = True, False
        heir.begun_s, heir.first_token_s, heir.last_token_s = live.begun_s, live.first_token_s, live.last_token_s
        self.live[live.id], self.live[heir.id] = live, heir

    def fail(
        self,
        live: Live,
        code: ErrorCode,
        reason: str,
        *,
        field: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        """Ends a request, wherever it is; nothing happens if it has ended already."""
        with self.cond:
            if live.is_closed or self.live.pop(live.id, None) is None:
                return
            live.is_joined = False
            (self.core.reject if code is ErrorCode.INVALID else self.core.fail)(live.id, self.clock())
            self._quit(live)
        line = ErrorLine(
            code=code, reason=reason, field=field, retry_after_ms=retry_after_ms, request_id=live.public_id
        )
        self.answer(live, live.error(line))

    def _quit(self, live: Live) -> None:
        work = live.work
        if work is not None:
            work.lives = tuple(other for other in work.lives if other is not live)
            if work.key is not None and work.id == live.id:
                self.repeats.leave(work.key, work)

    def observe(self, report: StepReport, works: Mapping[str, Work] = _NO_WORKS) -> None:
        """`works`: what the engine held before an end by failure, if there is one."""
        with self.cond:
            self.core.observe(report, self.clock())
            while self.core.openings:
                opening = self.core.openings.popleft()
                self.openings.append((opening.at_s, told(opening, works)))
            self.cond.notify_all()

    def observe_ends(self, *ends: End, works: Mapping[str, Work] = _NO_WORKS) -> None:
        self.observe(StepReport(step_ms=0.0, ends=ends), works)

    def sharing_figures(self) -> dict[str, float]:
        """For metrics; the lock is held."""
        out: dict[str, float] = {}
        if self.repeats.options.enabled:
            repeats = self.repeats
            out |= {
                "repeat_hits": repeats.hits,
                "repeat_joins": repeats.joins,
                "repeat_results": repeats.results,
                "repeat_bytes": repeats.bytes,
            }
        if self.kept.options.enabled:
            kept = self.kept
            out |= {
                "kept_streams": len(kept),
                "kept_stream_bytes": kept.bytes,
                "resumed_streams": kept.resumed,
                "dropped_streams": kept.dropped,
            }
        return out

    def drain(self) -> None:
        """From now on only what was accepted is served."""
        with self.cond:
            self.core.set_draining(self.clock())


def _terminal_of(answer: Chunk | ErrorLine) -> Terminal:
    if isinstance(answer, Chunk):
        return Terminal.FINISHED
    known = {ErrorCode.CANCELLED: Terminal.CANCELLED, ErrorCode.EXPIRED: Terminal.EXPIRED}
    return known.get(answer.code, Terminal.FAILED)


def refused_line(live: Live, refused: Refused) -> ErrorLine:
    return live.error(
        ErrorLine(
            code=refused.code,
            reason=refused.reason,
            retry_after_ms=refused.retry_after_ms,
            field=refused.field,
            request_id=live.public_id,
        )
    )


def expired_line(live: Live, expired: Expire) -> ErrorLine:
    reason = (
        f"waited {expired.waited_ms:.0f} ms for a place, its class may wait {expired.deadline_ms} ms; come back later"
        if expired.is_queue_timeout
        else f"no first token after {expired.waited_ms:.0f} ms, the deadline is {expired.deadline_ms} ms; "
        "come back when there is less load, or ask for a later deadline"
    )
    return live.error(
        ErrorLine(
            code=ErrorCode.EXPIRED,
            reason=reason,
            request_id=live.public_id,
            retry_after_ms=expired.retry_after_ms,
        )
    )


def cancelled_line(live: Live) -> ErrorLine:
    return live.error(
        ErrorLine(code=ErrorCode.CANCELLED, reason="the client cancelled or left", request_id=live.public_id)
    )


def failed_line(live: Live) -> ErrorLine:
    reason = "the engine failed while this request ran; the server's log has the details under its id"
    return live.error(ErrorLine(code=ErrorCode.FAILED, reason=reason, request_id=live.public_id))
