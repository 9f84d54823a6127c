"""Joins core, text and engine: owns the clock, the threads and the one lock.

Threads: a small intake pool tokenises, one engine loop schedules and steps, one poller notices clients that left, and
the outbox sends. The core is touched only under `_cond`; the engine only by the engine loop. Every accepted request
gets exactly one terminal answer, whatever happens to its client, the tokeniser or the engine.
"""

from __future__ import annotations

import collections
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .answers import Chunk, Inbound, InvalidInput
from .contract.refusal import ErrorCode, ErrorLine
from .core.scheduler import Scheduler
from .core.types import End, Expire, Phase, Refused, Release, Request, Signals, Snapshot, StepReport, Terminal
from .engines.port import EndReason, Engine, EngineRequest, EngineStats, EngineStepReport
from .live import Live
from .outbox import Outbox, Sink
from .text.detokenizer import Detokenizer
from .text.token_bytes import TokenBytes

__all__ = ["Service", "ServiceStats"]

_log = logging.getLogger(__name__)

# How long the engine loop waits for a push-style engine, and at most sleeps when idle.
_STEP_TIMEOUT_S = 0.005
_IDLE_WAIT_S = 0.5
# One cancel poll costs about 90 us in the Triton stub; this bounds the poller to a fifth of one core.
_POLL_PERIOD_S = 0.05
_POLLS_PER_PERIOD = 100
_ENGINE_RESTARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStats:
    """The one statistics port: everything that status and metrics show."""

    snapshot: Snapshot
    engine: EngineStats | None
    engine_kind: str
    outbox_depth: int
    engine_restarts: int
    engine_loop_age_s: float
    """Since the engine loop last came round; grows while a step hangs."""
    is_broken: bool

    @property
    def open_requests(self) -> int:
        """Requests that still wait for their last answer."""
        snap = self.snapshot
        return snap.intake + sum(snap.queued_by_class.values()) + snap.running + self.outbox_depth


class Service:
    """`start`, then `accept` from any thread, then `stop`."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        engine_factory: Callable[[], Engine],
        encode: Callable[[Inbound], tuple[int, ...]],
        vocabulary: TokenBytes,
        clock: Callable[[], float] = time.monotonic,
        outbox_workers: int = 4,
        intake_workers: int = 2,
    ) -> None:
        self._core = scheduler
        self._engine_factory = engine_factory
        self._engine: Engine | None = engine_factory()
        self._kind = self._engine.info.kind
        self._encode = encode
        self._vocabulary = vocabulary
        self._clock = clock
        self._cond = threading.Condition()
        self._live: dict[str, Live] = {}
        self._ids = itertools.count(1)
        self._engine_cancels: list[str] = []
        self._held_releases: dict[str, Release] = {}
        self._in_engine: dict[str, Live] = {}
        self._restarts = 0
        self._failures_in_a_row = 0
        self._last_loop_s = clock()
        self._is_stopping = False
        self._outbox = Outbox(workers=outbox_workers)
        self._intake = ThreadPoolExecutor(intake_workers, thread_name_prefix="seekserve-intake")
        self._threads = [
            threading.Thread(target=self._engine_loop, name="seekserve-engine", daemon=True),
            threading.Thread(target=self._poll_loop, name="seekserve-poller", daemon=True),
        ]

    # ---- from outside

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def accept(self, inbound: Inbound, sink: Sink) -> None:
        """Takes a request or refuses it; returns at once and never raises. Called on Triton's execute thread."""
        now = self._clock()
        number = next(self._ids)
        live = Live(f"r{number}", inbound, sink, arrival_s=now, lane=number)
        with self._cond:
            refused = self._core.offer(
                live.id,
                prompt_bytes=inbound.prompt_bytes,
                request_class=inbound.request_class,
                now=now,
                is_probe=inbound.is_probe,
            )
            if refused is None and self._is_stopping:
                self._core.fail(live.id, now)
                refused = Refused(id=live.id, code=ErrorCode.NOT_SERVING, reason="the server is stopping")
            if refused is None:
                self._live[live.id] = live
        if refused is not None:
            # Straight to the sink: nothing else was sent there, and a full outbox must not hold up Triton's thread.
            live.sink.error(self._refused_line(live, refused))
            return
        try:
            self._intake.submit(self._tokenise, live)
        except RuntimeError:  # the pool was shut down between the check and here
            self._fail(live, ErrorCode.NOT_SERVING, "the server is stopping")

    def refuse_invalid(self, client_id: str, sink: Sink, error: InvalidInput) -> None:
        """A request whose tensors could not be read; it never reaches the core."""
        sink.error(ErrorLine(code=ErrorCode.INVALID, reason=str(error), field=error.field, request_id=client_id))

    def stats(self) -> ServiceStats:
        with self._cond:
            snapshot = self._core.snapshot()
            engine = self._engine
        return ServiceStats(
            snapshot=snapshot,
            engine=None if engine is None else engine.stats(),
            engine_kind=self._kind,
            outbox_depth=self._outbox.depth,
            engine_restarts=self._restarts,
            engine_loop_age_s=self._clock() - self._last_loop_s,
            is_broken=engine is None,
        )

    def drain(self) -> None:
        """From now on only what was accepted is served."""
        with self._cond:
            self._core.set_draining(self._clock())

    def stop(self, timeout_s: float = 10.0) -> None:
        """Waits up to `timeout_s` for what is in flight, then fails the rest: none is left without an answer."""
        self.drain()
        deadline = self._clock() + timeout_s
        with self._cond:
            while self._live and self._clock() < deadline and self._engine is not None:
                self._cond.wait(0.05)
            self._is_stopping = True
            self._cond.notify_all()
        self._intake.shutdown(wait=True)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_s)
        for live in list(self._live.values()):
            self._fail(live, ErrorCode.NOT_SERVING, "the server stopped before this request was done")
        self._outbox.close()
        if self._engine is not None:
            self._engine.close()

    def check_integrity(self) -> None:
        with self._cond:
            self._core.check_integrity()

    # ---- intake

    def _tokenise(self, live: Live) -> None:
        try:
            inbound = live.inbound
            ids = self._encode(inbound)
            live.detokenizer = Detokenizer(self._vocabulary, inbound.stop_words)
            if inbound.echo_prompt and inbound.text is not None:
                live.prompt_text = inbound.text.decode("utf-8", "replace")
            live.prompt_ids = ids
        except InvalidInput as error:
            self._fail(live, ErrorCode.INVALID, str(error), field=error.field)
            return
        except Exception:
            _log.exception("tokenising request %s failed", live.id)
            self._fail(live, ErrorCode.FAILED, "the prompt could not be tokenised; the server's log has the details")
            return
        with self._cond:
            if live.id not in self._live:  # cancelled meanwhile
                return
            outcome = self._core.submit(self._core_request(live), self._clock())
            if isinstance(outcome, Refused):
                del self._live[live.id]
            self._cond.notify_all()
        if isinstance(outcome, Refused):
            self._refuse(live, outcome)

    @staticmethod
    def _core_request(live: Live) -> Request:
        inbound = live.inbound
        return Request(
            id=live.id,
            prompt_tokens=len(live.prompt_ids),
            max_tokens=inbound.max_tokens,
            request_class=inbound.request_class,
            tenant=inbound.tenant,
            deadline_ms=inbound.deadline_ms,
            arrival_s=live.arrival_s,
            is_probe=inbound.is_probe,
        )

    # ---- engine loop

    def _engine_loop(self) -> None:
        while True:
            with self._cond:
                self._last_loop_s = now = self._clock()
                if self._is_stopping:
                    return
                decisions = self._core.step(now, self._signals())
                cancels, self._engine_cancels = self._engine_cancels, []
                has_work = bool(self._in_engine or self._held_releases or decisions or cancels)
                if not has_work:
                    self._cond.wait(self._idle_wait_s(now))
                    continue
            try:
                self._act(decisions, cancels)
                if self._in_engine or cancels:
                    engine = self._engine
                    if engine is not None:
                        self._handle(engine.step(_STEP_TIMEOUT_S))
                        self._failures_in_a_row = 0
            except Exception as error:  # an engine may raise anything; no request may be lost for it
                self._engine_failed(error)

    def _idle_wait_s(self, now: float) -> float:
        deadline = self._core.next_deadline_s()
        return _IDLE_WAIT_S if deadline is None else min(_IDLE_WAIT_S, max(0.001, deadline - now))

    def _signals(self) -> Signals:
        if self._engine is None:
            return Signals()
        stats = self._engine.stats()
        return Signals(
            kv_free_blocks=stats.kv_free_blocks, kv_total_blocks=stats.kv_total_blocks, engine_running=stats.running
        )

    def _act(self, decisions: tuple[Release | Expire, ...], cancels: list[str]) -> None:
        for decision in decisions:
            if isinstance(decision, Expire):
                self._expire(decision)
            else:
                self._held_releases[decision.id] = decision
        engine = self._engine
        if engine is None:
            return
        for request_id in cancels:
            if self._held_releases.pop(request_id, None) is not None:
                self._end_unstarted(request_id)
            else:
                engine.cancel(request_id)
        # A cancelled request gives its blocks back with the next step, so a release may have to wait for that.
        for release in list(self._held_releases.values()):
            live = self._live.get(release.id)
            if live is None:
                del self._held_releases[release.id]
                self._observe_ends([End(id=release.id, terminal=Terminal.CANCELLED)])
                continue
            request = self._engine_request(live, release)
            if self._in_engine and not engine.can_add(request):
                return
            del self._held_releases[release.id]
            self._add(engine, live, request, release.queue_ms)

    def _add(self, engine: Engine, live: Live, request: EngineRequest, queue_ms: float) -> None:
        live.queue_ms = queue_ms
        try:
            engine.add(request)
        except ValueError:
            _log.exception("the engine does not take request %s", live.id)
            self._observe_ends([End(id=live.id, terminal=Terminal.FAILED)])
            self._answer(live, self._failed_line(live))
        else:
            self._in_engine[live.id] = live

    def _end_unstarted(self, request_id: str) -> None:
        """A released request whose client left before the engine took it."""
        live = self._live.get(request_id)
        if live is not None:
            self._answer(live, self._cancelled_line(live))
        self._observe_ends([End(id=request_id, terminal=Terminal.CANCELLED)])

    @staticmethod
    def _engine_request(live: Live, release: Release) -> EngineRequest:
        inbound = live.inbound
        return EngineRequest(
            id=live.id,
            prompt_ids=live.prompt_ids,
            max_tokens=release.max_tokens,
            sampling=inbound.sampling,
            stop_ids=() if inbound.end_id is None else (inbound.end_id,),
        )

    def _expire(self, decision: Expire) -> None:
        if decision.was_running:
            with self._cond:
                self._engine_cancels.append(decision.id)
        live = self._live.get(decision.id)
        if live is not None:
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

    def _handle(self, report: EngineStepReport) -> None:
        ends = {end.id: end for end in report.ends}
        produced: list[tuple[str, int]] = []
        for event in report.tokens:
            produced.append((event.id, len(event.token_ids)))
            live = self._in_engine.get(event.id)
            if live is None or live.is_closed:
                continue
            live.completion_tokens += len(event.token_ids)
            assert live.detokenizer is not None, "tokenised before it was released"
            piece = live.detokenizer.feed(event.token_ids)
            if piece.stopped:
                self._answer(live, live.last(piece.text, "stop"))
                with self._cond:
                    self._engine_cancels.append(live.id)
                continue
            end = ends.get(event.id)
            if end is not None and end.reason in (EndReason.STOP, EndReason.LENGTH):
                self._answer(live, live.finish(piece.text, end.reason.value))
            elif (chunk := live.piece(piece.text)) is not None:
                self._outbox.put(live.lane, live.sink, chunk)
        core_ends = [self._end(request_id, end.reason, end.message) for request_id, end in ends.items()]
        with self._cond:
            self._core.observe(
                StepReport(
                    step_ms=report.step_ms,
                    batch_size=report.batch_size,
                    prefill_tokens=report.prefill_tokens,
                    tokens_by_request=tuple(produced),
                    ends=tuple(core_ends),
                ),
                self._clock(),
            )
            self._cond.notify_all()

    def _end(self, request_id: str, reason: EndReason, message: str) -> End:
        """Answers the client of an ended request if that was not done yet, and says how it ended."""
        live = self._in_engine.pop(request_id, None)
        if live is None:
            return End(id=request_id, terminal=Terminal.CANCELLED)
        if live.is_closed:  # by a stop string (finished), or expired (the core has its terminal already)
            return End(id=request_id, terminal=Terminal.FINISHED)
        if reason in (EndReason.STOP, EndReason.LENGTH):
            self._answer(live, live.finish("", reason.value))
            return End(id=request_id, terminal=Terminal.FINISHED)
        if reason is EndReason.CANCELLED:
            self._answer(live, self._cancelled_line(live))
            return End(id=request_id, terminal=Terminal.CANCELLED)
        _log.error("request %s failed in the engine: %s", request_id, message)
        self._answer(live, self._failed_line(live))
        return End(id=request_id, terminal=Terminal.FAILED)

    def _observe_ends(self, ends: list[End]) -> None:
        with self._cond:
            self._core.observe(StepReport(step_ms=0.0, ends=tuple(ends)), self._clock())
            self._cond.notify_all()

    def _engine_failed(self, error: Exception) -> None:
        """The engine as a whole broke: fail what it held, make a new one; give up after a few times in a row."""
        _log.error("the engine failed and is made anew", exc_info=error)
        lost = list(self._in_engine.values())
        self._in_engine.clear()
        self._observe_ends(
            [End(id=live.id, terminal=Terminal.FINISHED if live.is_closed else Terminal.FAILED) for live in lost]
        )
        for live in lost:
            if not live.is_closed:
                self._answer(live, self._failed_line(live))
        self._failures_in_a_row += 1
        old, self._engine = self._engine, None
        try:
            if old is not None:
                old.close()
        except Exception:
            _log.exception("closing the failed engine failed too")
        if self._failures_in_a_row <= _ENGINE_RESTARTS:
            try:
                self._engine = self._engine_factory()
                self._restarts += 1
                return
            except Exception:
                _log.exception("a new engine could not be made")
        self.drain()
        self._held_releases.clear()
        _log.error("the engine failed %d times in a row; not serving until restarted", self._failures_in_a_row)
        for live in list(self._live.values()):
            self._fail(live, ErrorCode.NOT_SERVING, "the engine is broken; the server must be restarted")

    # ---- clients that left

    def _poll_loop(self) -> None:
        pending: collections.deque[Live] = collections.deque()
        while True:
            with self._cond:
                if self._is_stopping:
                    return
                if not pending:
                    pending.extend(self._live.values())
                self._cond.wait_for(lambda: self._is_stopping, _POLL_PERIOD_S)
            for _ in range(min(_POLLS_PER_PERIOD, len(pending))):
                live = pending.popleft()
                if not live.is_closed and live.sink.is_cancelled():
                    self._client_left(live)

    def _client_left(self, live: Live) -> None:
        with self._cond:
            if live.is_closed or live.id not in self._live:
                return
            phase = self._core.cancel(live.id, self._clock())
            if phase is Phase.RUNNING:
                self._engine_cancels.append(live.id)
                self._cond.notify_all()
                return
            if phase is not None:
                del self._live[live.id]
        if phase is not None:
            self._answer(live, self._cancelled_line(live))

    # ---- answers

    def _answer(self, live: Live, terminal: Chunk | ErrorLine) -> None:
        live.is_closed = True
        self._outbox.put(live.lane, live.sink, terminal)
        with self._cond:
            self._live.pop(live.id, None)

    def _refuse(self, live: Live, refused: Refused) -> None:
        self._answer(live, self._refused_line(live, refused))

    @staticmethod
    def _refused_line(live: Live, refused: Refused) -> ErrorLine:
        return live.error(
            ErrorLine(
                code=refused.code,
                reason=refused.reason,
                retry_after_ms=refused.retry_after_ms,
                field=refused.field,
                request_id=live.public_id,
            )
        )

    def _fail(self, live: Live, code: ErrorCode, reason: str, field: str | None = None) -> None:
        with self._cond:
            if live.is_closed or self._live.pop(live.id, None) is None:
                return
            self._core.fail(live.id, self._clock())
            self._in_engine.pop(live.id, None)
        line = ErrorLine(code=code, reason=reason, field=field, request_id=live.public_id)
        self._answer(live, live.error(line))

    @staticmethod
    def _cancelled_line(live: Live) -> ErrorLine:
        return live.error(
            ErrorLine(code=ErrorCode.CANCELLED, reason="the client cancelled or left", request_id=live.public_id)
        )

    @staticmethod
    def _failed_line(live: Live) -> ErrorLine:
        reason = "the engine failed while this request ran; the server's log has the details under its id"
        return live.error(ErrorLine(code=ErrorCode.FAILED, reason=reason, request_id=live.public_id))
