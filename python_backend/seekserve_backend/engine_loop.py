"""The one thread that schedules and steps: asks the core what to do, does it with the engine, reports what came of it.

The engine is touched by this thread alone. Whatever it raises, its requests are answered here and a new engine is made
(`engine_keeper`). `cancel`, `exchange` and `stop` may be called from any thread, `do` by whoever holds the desk's lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from .contract.refusal import ErrorCode, ErrorLine
from .core.types import End, Expire, Release, Signals, StepReport, Terminal
from .desk import Desk
from .engine_keeper import BROKEN, EngineKeeper
from .engines.port import EndReason, Engine, EngineError, EngineRequest, EngineStepReport, TokenEvent
from .exchange import Exchange, fail_the_rest
from .live import Live
from .step_log import StepLog
from .telling import Telling
from .work import Work

__all__ = ["EngineLoop"]

_log = logging.getLogger(__name__)

# How long a step may wait for an engine that pushes, and how long an idle loop sleeps.
_STEP_TIMEOUT_S = 0.005
_IDLE_WAIT_S = 0.5
_SWAPPING = "another variant of the model is being loaded; come back then"


class EngineLoop:
    """`start`, then orders from other threads, then `stop`."""

    def __init__(self, desk: Desk, keeper: EngineKeeper, step_log: StepLog | None = None) -> None:
        self._desk = desk
        self._keeper = keeper
        self._step_log = step_log
        self.telling = Telling(desk)
        self._exchange: Exchange | None = None
        self._cancels: list[str] = []
        self._orders: list[Callable[[], None]] = []
        """To be carried out by the loop's thread."""
        self._held: dict[str, Release] = {}
        """Released by the core, not yet taken by the engine."""
        self.in_engine: dict[str, Work] = {}  # others may look at it
        self._last_round_s = desk.clock()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="seekserve-engine", daemon=True)

    @property
    def age_s(self) -> float:
        """Since the loop last came round, or had another engine; grows while a step hangs."""
        return self._desk.clock() - max(self._last_round_s, self._keeper.settled_s)

    def start(self) -> None:
        self._thread.start()

    def cancel(self, request_id: str) -> None:
        """Asks for the end of a running request; its End comes through the core's `observe`."""
        with self._desk.cond:
            self._cancels.append(request_id)
            self._desk.cond.notify_all()

    def do(self, order: Callable[[], None]) -> None:
        """Soon, on the loop's thread, which alone touches what the engine works on; the lock is held."""
        self._orders.append(order)
        self._desk.cond.notify_all()

    def exchange(self, wish: Exchange) -> None:
        """Takes nothing new, lets what was accepted end, then replaces the engine. One at a time."""
        desk = self._desk
        with desk.cond:
            self._exchange = wish
            desk.core.pause(desk.clock() + self._keeper.load_s, _SWAPPING)
            desk.cond.notify_all()

    def stop(self, timeout_s: float) -> None:
        """Ends the loop after the step it is in, and closes the engine."""
        with self._desk.cond:
            self._is_stopping = True
            self._desk.cond.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._step_log is not None and not self._thread.is_alive():
            self._step_log.flush()
        # An engine that is still in a step belongs to its thread; the process is about to end anyway.
        if not self._thread.is_alive():
            self._keeper.close()

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._round()
        except Exception:  # a fault of ours, not of an engine: without this thread nobody would ever be answered
            _log.exception("the engine loop failed")
            self._keeper.give_up()

    def _round(self) -> None:
        desk = self._desk
        if self._exchange is not None and self._has_drained(self._exchange):
            wish, self._exchange = self._exchange, None
            self._keeper.exchange(wish)
        with desk.cond:
            self._last_round_s = now = desk.clock()
            if self._is_stopping:
                return
            decisions = desk.core.step(now, self._signals())
            cancels, self._cancels = self._cancels, []
            orders, self._orders = self._orders, []
            is_idle = not (self.in_engine or self._held or decisions or cancels or orders)
            if is_idle and desk.cond.wait(self._idle_wait_s(now)):
                return
        if is_idle:
            self._look_after_idle_engine()
            return
        try:
            for order in orders:
                order()
            self._act(decisions, cancels)
            engine = self._keeper.engine
            if engine is not None and (self.in_engine or cancels):
                self._report(engine.step(_STEP_TIMEOUT_S))
                self._keeper.worked()
        except Exception as error:  # an engine may raise anything; no request may be lost for it
            self._engine_failed(error)
        desk.outbox.flush()

    def _look_after_idle_engine(self) -> None:
        """An engine that pushes may die with nothing to do: better noticed here than by the next request."""
        engine = self._keeper.engine
        if engine is not None:
            try:
                engine.step(0.0)
            except Exception as error:
                self._engine_failed(error)

    def _idle_wait_s(self, now: float) -> float:
        deadline = self._desk.core.next_deadline_s()
        return _IDLE_WAIT_S if deadline is None else min(_IDLE_WAIT_S, max(0.001, deadline - now))

    def _signals(self) -> Signals:
        engine = self._keeper.engine
        if engine is None:
            return Signals()
        stats = engine.stats()
        return Signals(
            kv_free_blocks=stats.kv_free_blocks, kv_total_blocks=stats.kv_total_blocks, engine_running=stats.running
        )

    def _act(self, decisions: tuple[Release | Expire, ...], cancels: list[str]) -> None:
        for decision in decisions:
            if isinstance(decision, Expire):
                self._expire(decision)
            else:
                self._held[decision.id] = decision
        with self._desk.cond:  # an expired request leaves the engine with this very step
            cancels, self._cancels = [*cancels, *self._cancels], []
        engine = self._keeper.engine
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
            work = None if live is None else live.work
            request = None if work is None else work.engine_request(release)
            if request is not None and self.in_engine and not engine.can_add(request):
                return
            del self._held[release.id]
            if live is None or work is None or request is None:
                self._end_unstarted(release.id)
            else:
                live.queue_ms = release.queue_ms
                self._add(engine, live, work, request)

    def _add(self, engine: Engine, first: Live, work: Work, request: EngineRequest) -> None:
        self.in_engine[work.id] = work
        now = self._desk.clock()
        for live in work.lives:
            if live.is_joined:
                live.queue_ms = max(0.0, (now - live.arrival_s) * 1000.0)
        try:
            engine.add(request)
            self._desk.measures.taken(first, self._desk.clock())
        except EngineError:
            raise
        except Exception:  # of this request alone, be it its parameters or memory for it
            _log.exception("the engine does not take request %s", work.id)
            works = dict(self.in_engine)
            del self.in_engine[work.id]
            self._desk.observe_ends(End(id=work.id, terminal=Terminal.FAILED), works=works)
            self.telling.fail(work)

    def _end_unstarted(self, request_id: str) -> None:
        """A released request whose client left, or that expired, before the engine took it."""
        live = self._desk.live.get(request_id)
        if live is not None and live.work is not None:
            self.telling.cancelled(live.work)
        self._desk.observe_ends(End(id=request_id, terminal=Terminal.CANCELLED))

    def _refuse_unserved(self, request_id: str) -> None:
        del self._held[request_id]
        self._desk.observe_ends(End(id=request_id, terminal=Terminal.FAILED))
        live = self._desk.live.get(request_id)
        if live is not None:
            line = ErrorLine(code=ErrorCode.NOT_SERVING, reason=BROKEN, request_id=live.public_id)
            self._desk.answer(live, live.error(line), is_collected=True)

    def _expire(self, decision: Expire) -> None:
        if decision.was_running:
            self.cancel(decision.id)
        self.telling.expire(decision)

    def _report(self, report: EngineStepReport) -> None:
        """Answers clients first, then tells the core."""
        if self._step_log is not None:
            self._step_log.note(report, self.in_engine)
        reasons = {end.id: end.reason for end in report.ends}
        works = dict(self.in_engine) if EndReason.FAILED in reasons.values() else {}
        made = sum(len(event.token_ids) for event in report.tokens)
        firsts = tuple(event.id for event in report.tokens if self._is_first(event.id))
        first_made = sum(len(event.token_ids) for event in report.tokens if event.id in set(firsts))
        for event in report.tokens:
            try:
                self._take_tokens(event, reasons.get(event.id))
            except Exception:  # of this answer alone; the engine did nothing wrong
                self._spoiled(event.id)
        self._desk.measures.step(report)
        self._desk.observe(
            StepReport(
                step_ms=report.step_ms,
                batch_size=report.batch_size,
                prefill_tokens=report.prefill_tokens,
                decode_tokens=made - first_made,
                firsts=firsts,
                ends=tuple(self._end(end.id, end.reason, end.message) for end in report.ends),
            ),
            works,
        )

    def _is_first(self, request_id: str) -> bool:
        work = self.in_engine.get(request_id)
        return work is not None and not work.has_begun

    def _take_tokens(self, event: TokenEvent, ended: EndReason | None) -> None:
        work = self.in_engine.get(event.id)
        if work is None or work.is_over:
            return
        reason = ended.value if ended in (EndReason.STOP, EndReason.LENGTH) else None
        now = self._desk.clock()
        for live in work.lives:
            self._desk.measures.tokens(live, now)
        piece = work.feed(event.token_ids, event.logprobs, reason)
        if piece is None:
            return
        if piece.finish_reason is None:
            self.telling.spread(work, piece)
            return
        self.telling.finish(work, piece)
        if reason is None:  # a stop string, of which the engine knows nothing
            self.cancel(work.id)

    def _spoiled(self, request_id: str) -> None:
        _log.exception("the tokens of request %s could not be made an answer", request_id)
        work = self.in_engine.get(request_id)
        if work is not None:
            self.telling.fail_rest(work)
        self.cancel(request_id)

    def _end(self, request_id: str, reason: EndReason, message: str) -> End:
        """Answers the client of an ended request if that was not done yet, and says how it ended."""
        work = self.in_engine.pop(request_id, None)
        if work is None:
            return End(id=request_id, terminal=Terminal.CANCELLED)
        if work.is_over:  # by its last token or a stop string (finished), or expired (the core knows that already)
            return End(id=request_id, terminal=_over_as(work), tokens=work.made_tokens)
        if reason in (EndReason.STOP, EndReason.LENGTH):
            self.telling.finish(work, work.end(reason.value))
            return End(id=request_id, terminal=Terminal.FINISHED, tokens=work.made_tokens)
        if reason is EndReason.CANCELLED:
            self.telling.cancelled(work)
            return End(id=request_id, terminal=Terminal.CANCELLED)
        _log.error("request %s failed in the engine: %s", request_id, message)
        self.telling.fail(work)
        return End(id=request_id, terminal=Terminal.FAILED, tokens=work.made_tokens)

    def _has_drained(self, wish: Exchange) -> bool:
        """Keeps the door closed; at the deadline it fails what is left."""
        desk = self._desk
        with desk.cond:
            now = desk.clock()
            desk.core.pause(now + self._keeper.load_s, _SWAPPING)
            # A probe that the core has released goes with what is left: the new engine will know nothing of it.
            left = [live for live in desk.live.values() if not live.inbound.is_probe or live.id in self._held]
        if now < wish.deadline_s:
            return not (left or self.in_engine or self._held)
        wish.failed_requests = len(left)
        fail_the_rest(desk, left, self.in_engine.values(), load_s=self._keeper.load_s)
        self.in_engine.clear()
        self._held.clear()
        return True

    def _engine_failed(self, error: Exception) -> None:
        _log.error("the engine failed and is made anew", exc_info=error)
        lost = list(self.in_engine.values())
        self.in_engine.clear()
        self._desk.observe_ends(
            *(End(id=work.id, terminal=_over_as(work) if work.is_over else Terminal.FAILED) for work in lost),
            works={work.id: work for work in lost},
        )
        for work in lost:
            if not work.is_over:
                self.telling.fail(work)
        self._keeper.make_anew()
        if self._keeper.is_broken:
            self._held.clear()  # they have their answer


def _over_as(work: Work) -> Terminal:
    """How work ended of which the engine can say nothing new."""
    return Terminal.CANCELLED if work.is_paused else Terminal.FINISHED
