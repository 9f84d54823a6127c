"""The one thread that schedules and steps: asks the core what to do, does it with the engine, reports what came of it.

The engine is touched by this thread alone. Whatever it raises, its requests are answered and a new engine is made;
after a few failures in a row the service stops taking work and says so in its heartbeat.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from .answers import Chunk
from .contract.refusal import ErrorCode, ErrorLine
from .core.types import End, Expire, Release, Signals, StepReport, Terminal
from .desk import Desk, cancelled_line, failed_line
from .engines.port import EndReason, Engine, EngineError, EngineRequest, EngineStats, EngineStepReport, TokenEvent
from .live import Live

__all__ = ["EngineLoop"]

_log = logging.getLogger(__name__)

# How long a step may wait for an engine that pushes, and how long an idle loop sleeps.
_STEP_TIMEOUT_S = 0.005
_IDLE_WAIT_S = 0.5
_RESTARTS_IN_A_ROW = 2
_BROKEN = "the engine is broken; the server must be restarted"


class EngineLoop:
    """Makes its engine in the constructor, so that a bundle that cannot be loaded fails there."""

    def __init__(self, desk: Desk, engine_factory: Callable[[], Engine]) -> None:
        self._desk = desk
        self._engine_factory = engine_factory
        self._engine: Engine | None = engine_factory()
        self.info = self._engine.info
        """Of the first engine; one made after it failed is made of the same bundle."""
        self._cancels: list[str] = []
        self._held: dict[str, Release] = {}
        """Released by the core, not yet taken by the engine."""
        self._in_engine: dict[str, Live] = {}
        self._failures_in_a_row = 0
        self._last_round_s = desk.clock()
        self._is_stopping = False
        self.restarts = 0
        self.is_rebuilding = False
        self._thread = threading.Thread(target=self._run, name="seekserve-engine", daemon=True)

    @property
    def is_broken(self) -> bool:
        """There is no engine, and none will be made."""
        return self._engine is None and not self.is_rebuilding

    @property
    def age_s(self) -> float:
        """Since the loop last came round; grows while a step hangs."""
        return self._desk.clock() - self._last_round_s

    def stats(self) -> EngineStats | None:
        engine = self._engine
        return None if engine is None else engine.stats()

    def start(self) -> None:
        self._thread.start()

    def cancel(self, request_id: str) -> None:
        """Asks for the end of a running request; its End comes through the core's `observe`."""
        with self._desk.cond:
            self._cancels.append(request_id)
            self._desk.cond.notify_all()

    def stop(self, timeout_s: float) -> None:
        """Ends the loop after the step it is in, and closes the engine."""
        with self._desk.cond:
            self._is_stopping = True
            self._desk.cond.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        # An engine that is still in a step belongs to its thread; the process is about to end anyway.
        if self._engine is not None and not self._thread.is_alive():
            self._engine.close()

    def _run(self) -> None:
        desk = self._desk
        while True:
            with desk.cond:
                self._last_round_s = now = desk.clock()
                if self._is_stopping:
                    return
                decisions = desk.core.step(now, self._signals())
                cancels, self._cancels = self._cancels, []
                if not (self._in_engine or self._held or decisions or cancels):
                    if desk.cond.wait(self._idle_wait_s(now)):
                        continue
                    is_quiet = True
                else:
                    is_quiet = False
            if is_quiet:
                self._look_after_idle_engine()
                continue
            try:
                self._act(decisions, cancels)
                if self._engine is not None and (self._in_engine or cancels):
                    self._report(self._engine.step(_STEP_TIMEOUT_S))
                    self._failures_in_a_row = 0
            except Exception as error:  # an engine may raise anything; no request may be lost for it
                self._engine_failed(error)
            desk.outbox.flush()

    def _look_after_idle_engine(self) -> None:
        """An engine that pushes may die with nothing to do: better noticed here than by the next request."""
        if self._engine is not None:
            try:
                self._engine.step(0.0)
            except Exception as error:
                self._engine_failed(error)

    def _idle_wait_s(self, now: float) -> float:
        deadline = self._desk.core.next_deadline_s()
        return _IDLE_WAIT_S if deadline is None else min(_IDLE_WAIT_S, max(0.001, deadline - now))

    def _signals(self) -> Signals:
        stats = self.stats()
        if stats is None:
            return Signals()
        return Signals(
            kv_free_blocks=stats.kv_free_blocks, kv_total_blocks=stats.kv_total_blocks, engine_running=stats.running
        )

    def _act(self, decisions: tuple[Release | Expire, ...], cancels: list[str]) -> None:
        for decision in decisions:
            if isinstance(decision, Expire):
                self._expire(decision)
            else:
                self._held[decision.id] = decision
        engine = self._engine
        if engine is None:
            # Only a probe gets this far: it is let past a closed door, and finds nobody in.
            for request_id in list(self._held):
                self._refuse_unserved(request_id)
            return
        for request_id in cancels:
            if self._held.pop(request_id, None) is not None:
                self._end_unstarted(request_id)
            else:
                engine.cancel(request_id)
        # A cancelled request gives its blocks back with the next step, so a release may have to wait for that.
        for release in list(self._held.values()):
            live = self._desk.live.get(release.id)
            request = None if live is None else _engine_request(live, release)
            if request is not None and self._in_engine and not engine.can_add(request):
                return
            del self._held[release.id]
            if live is None or request is None:
                self._end_unstarted(release.id)
            else:
                self._add(engine, live, request, release.queue_ms)

    def _add(self, engine: Engine, live: Live, request: EngineRequest, queue_ms: float) -> None:
        live.queue_ms = queue_ms
        self._in_engine[live.id] = live
        try:
            engine.add(request)
        except EngineError:
            raise
        except Exception:  # of this request alone, be it its parameters or memory for it
            _log.exception("the engine does not take request %s", live.id)
            del self._in_engine[live.id]
            self._desk.observe_ends(End(id=live.id, terminal=Terminal.FAILED))
            self._answer(live, failed_line(live))

    def _end_unstarted(self, request_id: str) -> None:
        """A released request whose client left, or that expired, before the engine took it."""
        live = self._desk.live.get(request_id)
        if live is not None:
            self._answer(live, cancelled_line(live))
        self._desk.observe_ends(End(id=request_id, terminal=Terminal.CANCELLED))

    def _refuse_unserved(self, request_id: str) -> None:
        del self._held[request_id]
        self._desk.observe_ends(End(id=request_id, terminal=Terminal.FAILED))
        live = self._desk.live.get(request_id)
        if live is not None:
            line = ErrorLine(code=ErrorCode.NOT_SERVING, reason=_BROKEN, request_id=live.public_id)
            self._answer(live, live.error(line))

    def _answer(self, live: Live, terminal: Chunk | ErrorLine) -> None:
        self._desk.answer(live, terminal, is_collected=True)

    def _expire(self, decision: Expire) -> None:
        if decision.was_running:
            self.cancel(decision.id)
        live = self._desk.live.get(decision.id)
        if live is None:
            return
        reason = (
            f"no first token after {decision.waited_ms:.0f} ms, the deadline is {decision.deadline_ms} ms; "
            "come back when there is less load, or ask for a later deadline"
        )
        line = ErrorLine(
            code=ErrorCode.EXPIRED,
            reason=reason,
            request_id=live.public_id,
            retry_after_ms=decision.retry_after_ms,
        )
        self._answer(live, live.error(line))

    def _report(self, report: EngineStepReport) -> None:
        """Answers clients first, then tells the core."""
        reasons = {end.id: end.reason for end in report.ends}
        made = sum(len(event.token_ids) for event in report.tokens)
        firsts = tuple(event.id for event in report.tokens if self._is_first(event.id))
        first_made = sum(len(event.token_ids) for event in report.tokens if event.id in set(firsts))
        for event in report.tokens:
            self._take_tokens(event, reasons.get(event.id))
        self._desk.observe(
            StepReport(
                step_ms=report.step_ms,
                batch_size=report.batch_size,
                prefill_tokens=report.prefill_tokens,
                decode_tokens=made - first_made,
                firsts=firsts,
                ends=tuple(self._end(end.id, end.reason, end.message) for end in report.ends),
            )
        )

    def _is_first(self, request_id: str) -> bool:
        live = self._in_engine.get(request_id)
        return live is not None and live.completion_tokens == 0

    def _take_tokens(self, event: TokenEvent, ended: EndReason | None) -> None:
        live = self._in_engine.get(event.id)
        if live is None or live.is_closed:
            return
        assert live.detokenizer is not None, "tokenised before it was released"
        live.completion_tokens += len(event.token_ids)
        if live.logprobs is not None:
            live.logprobs.add(event.token_ids, event.logprobs)
        piece = live.detokenizer.feed(event.token_ids)
        if piece.stopped:
            self._answer(live, live.last(piece.text, "stop"))
            self.cancel(live.id)
        elif ended in (EndReason.STOP, EndReason.LENGTH):
            self._answer(live, live.finish(piece.text, ended.value))
        elif (chunk := live.piece(piece.text)) is not None:
            self._desk.outbox.put(live.lane, live.sink, chunk)

    def _end(self, request_id: str, reason: EndReason, message: str) -> End:
        """Answers the client of an ended request if that was not done yet, and says how it ended."""
        live = self._in_engine.pop(request_id, None)
        if live is None:
            return End(id=request_id, terminal=Terminal.CANCELLED)
        if live.is_closed:  # by its last token or a stop string (finished), or expired (the core knows that already)
            return End(id=request_id, terminal=Terminal.FINISHED, tokens=live.completion_tokens)
        if reason in (EndReason.STOP, EndReason.LENGTH):
            self._answer(live, live.finish("", reason.value))
            return End(id=request_id, terminal=Terminal.FINISHED, tokens=live.completion_tokens)
        if reason is EndReason.CANCELLED:
            self._answer(live, cancelled_line(live))
            return End(id=request_id, terminal=Terminal.CANCELLED)
        _log.error("request %s failed in the engine: %s", request_id, message)
        self._answer(live, failed_line(live))
        return End(id=request_id, terminal=Terminal.FAILED, tokens=live.completion_tokens)

    def _engine_failed(self, error: Exception) -> None:
        _log.error("the engine failed and is made anew", exc_info=error)
        lost = list(self._in_engine.values())
        self._in_engine.clear()
        self._desk.observe_ends(
            *(End(id=live.id, terminal=Terminal.FINISHED if live.is_closed else Terminal.FAILED) for live in lost)
        )
        for live in lost:
            if not live.is_closed:
                self._answer(live, failed_line(live))
        self._failures_in_a_row += 1
        self.is_rebuilding = True
        old, self._engine = self._engine, None
        try:
            if old is not None:
                old.close()
        except Exception:
            _log.exception("closing the failed engine failed too")
        if self._failures_in_a_row <= _RESTARTS_IN_A_ROW:
            try:
                self._engine = self._engine_factory()
                self.restarts += 1
            except Exception:
                _log.exception("a new engine could not be made")
        self.is_rebuilding = False
        if self._engine is None:
            self._give_up()

    def _give_up(self) -> None:
        _log.error("the engine failed %d times in a row; not serving until restarted", self._failures_in_a_row)
        self._desk.drain()
        self._held.clear()
        self._desk.outbox.flush()
        with self._desk.cond:
            left = list(self._desk.live.values())
        for live in left:
            self._desk.fail(live, ErrorCode.NOT_SERVING, _BROKEN)


def _engine_request(live: Live, release: Release) -> EngineRequest:
    inbound = live.inbound
    return EngineRequest(
        id=live.id,
        prompt_ids=live.prompt_ids,
        max_tokens=release.max_tokens,
        sampling=inbound.sampling,
        stop_ids=() if inbound.end_id is None else (inbound.end_id,),
        wants_logprobs=inbound.wants_logprobs,
        beam_width=min(inbound.beam_width, release.max_beam_width or inbound.beam_width),
    )
