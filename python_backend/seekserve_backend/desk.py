"""The requests that are open, the core behind its one lock, and how a terminal answer leaves.

Whoever ends a request does it here, so that each gets exactly one terminal answer, whichever of engine, tokeniser,
poller and shutdown comes first. `core` is touched only while `cond` is held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .answers import Chunk
from .contract.refusal import ErrorCode, ErrorLine
from .core.scheduler import Scheduler
from .core.types import End, Expire, Refused, StepReport
from .live import Live
from .measures import Measures
from .outbox import Outbox

__all__ = ["Desk", "cancelled_line", "expired_line", "failed_line", "refused_line"]


class Desk:
    def __init__(self, core: Scheduler, outbox: Outbox, clock: Callable[[], float]) -> None:
        self.core = core
        self.outbox = outbox
        self.clock = clock
        self.cond = threading.Condition()
        self.live: dict[str, Live] = {}
        self.measures = Measures()

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
            (self.core.reject if code is ErrorCode.INVALID else self.core.fail)(live.id, self.clock())
        line = ErrorLine(
            code=code, reason=reason, field=field, retry_after_ms=retry_after_ms, request_id=live.public_id
        )
        self.answer(live, live.error(line))

    def observe(self, report: StepReport) -> None:
        with self.cond:
            self.core.observe(report, self.clock())
            self.cond.notify_all()

    def observe_ends(self, *ends: End) -> None:
        self.observe(StepReport(step_ms=0.0, ends=ends))

    def drain(self) -> None:
        """From now on only what was accepted is served."""
        with self.cond:
            self.core.set_draining(self.clock())


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
        f"no first token after {expired.waited_ms:.0f} ms, the deadline is {expired.deadline_ms} ms; "
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
