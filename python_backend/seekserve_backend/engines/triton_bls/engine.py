"""The stock `tensorrt_llm` model behind the engine port.

It decides when a request is handed over, what each response means, when a stream that is over for us is over for the
stock model too, and when the stock model as a whole has failed. Invariant: each added request ends in exactly one
EndEvent, or with the EngineError that ends them all; its place is free only when its stream has ended.
"""

from __future__ import annotations

import collections
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...contract.bundle import KvCache, Retention
from ..port import EndEvent, EndReason, EngineError, EngineInfo, EngineRequest, EngineStats, EngineStepReport
from ..reference.checks import request_problems
from .books import Books
from .faults import Fault, fault_of
from .link import Link
from .port import StockResponse
from .step import Step
from .stream import Phase, Stream, StreamError
from .tensors import generation_call

__all__ = ["StockEngine", "Timing"]

_log = logging.getLogger(__name__)
_GONE_IN_A_ROW = 3
_CLOSE_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    stall_s: float = 120.0
    """Nothing from any stream for so long: the stock model as a whole has failed.

    Nothing from one that had begun, while others go on: that request has failed. Triton before 25.04 loses an error
    that comes after the first response, and never ends its stream.
    """
    stop_again_s: float = 1.0
    """A stream that is over for us gets a stop (again) after this time."""
    drain_cap_s: float = 30.0
    """How long a stream that is over for us may keep its place."""
    close_wait_s: float = 2.0
    """How long a closing engine waits for the streams it stops."""
    gather_s: float = 0.001
    """After the first event of a step: the stock model answers all requests of an iteration nearly at once."""


class StockEngine:
    """An `Engine` (see `engines/port.py`)."""

    def __init__(
        self,
        link: Link,
        info: EngineInfo,
        kv: KvCache,
        *,
        max_opening: int,
        retention: Retention | None = None,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_opening`: requests handed over and unanswered at once. Each of them holds a thread of the server's own
        pool, which also sends our clients their responses."""
        self._link = link
        self._info = info
        self._kv = kv
        self._retention = retention
        self._timing = timing or Timing()
        self._clock = clock
        self._books = Books(link, info, max_opening=max_opening)
        self._active: dict[str, Stream] = {}
        self._waiting: collections.deque[Stream] = collections.deque()
        self._step = Step(clock)
        self._heard_s = clock()
        self._gone_in_a_row = 0
        self._failure: str | None = None
        self._is_closed = False
        self._publish()

    @property
    def info(self) -> EngineInfo:
        return self._info

    def can_add(self, request: EngineRequest) -> bool:
        return self._books.fits(self._blocks(request), self._active.values(), with_draining=True)

    def add(self, request: EngineRequest) -> None:
        """A request that only waits for a cancelled one to end in the stock model is taken, and handed over then."""
        self._check_open()
        problems = request_problems(request, self._info, self._kv)
        if request.beam_width > self._info.max_beam_width:
            problems.append(f"beam_width is {request.beam_width}, the limit is {self._info.max_beam_width}")
        if request.id in self._active:
            problems.append("a request with this id is running")
        blocks = self._blocks(request)
        if not problems and not self._books.fits(blocks, self._active.values(), with_draining=False):
            problems.append(f"no room for {blocks} KV blocks beside {len(self._active)} requests: ask can_add first")
        if problems:
            raise ValueError(f"request {request.id}: " + "; ".join(problems))
        stop_ids = request.stop_ids or self._info.eos_ids
        call = generation_call(
            request,
            stock_id=self._link.new_id(),
            stop_ids=stop_ids,
            vocab_size=self._info.vocab_size,
            seed=secrets.randbits(63),
            timeout_us=round(self._timing.stall_s * 1e6),
            retention=self._retention,
        )
        stream = Stream(
            request,
            call,
            blocks=blocks,
            stop_ids=stop_ids,
            max_seq_len_tokens=self._info.max_seq_len_tokens,
            now=self._clock(),
        )
        if not self._active:
            self._heard_s = self._clock()
        self._active[request.id] = stream
        self._waiting.append(stream)
        self._hand_over()
        self._publish()

    def cancel(self, request_id: str) -> None:
        stream = self._active.get(request_id)
        if stream is not None:
            self._end(stream, EndReason.CANCELLED, stop_now=True)

    def step(self, timeout_s: float) -> EngineStepReport:
        self._check_open()
        self._hand_over()
        for stream, response in self._step.gather(self._link.events, timeout_s, self._timing.gather_s):
            self._take(stream, response)
        now = self._clock()
        self._look_after_draining(now)
        self._look_for_silence(now)
        if self._failure is not None:
            self._abandon()
            self._publish()
            raise EngineError(f"the stock model has failed: {self._failure}")
        report = self._step.report()
        self._publish()
        return report

    def stats(self) -> EngineStats:
        return self._stats

    def close(self) -> None:
        """Idempotent. Stops what runs, and gives the stock model a moment to end it."""
        self._is_closed = True
        self._abandon()
        self._step.report()
        for _ in range(round(self._timing.close_wait_s / _CLOSE_POLL_S)):
            if not self._link.open:
                break
            for stream, response in self._step.gather(self._link.events, _CLOSE_POLL_S, 0.0):
                self._take(stream, response)
        self._publish()

    def check_integrity(self) -> None:
        """Raises AssertionError when streams, slots and blocks do not add up."""
        self._books.check_integrity(self._active.values())

    def _hand_over(self) -> None:
        while self._waiting:
            stream = self._waiting[0]
            if stream.phase is Phase.WAITING:
                if not self._books.can_open(stream):
                    return
                stream.phase = Phase.OPENING
                stream.heard_s = stream.sent_s = self._clock()
                self._link.start(stream)
            self._waiting.popleft()

    def _take(self, stream: Stream, response: StockResponse | None) -> None:
        self._heard_s = stream.heard_s = self._clock()
        is_first = stream.answered()
        try:
            if response is None:
                self._link.forget(stream)
                if not stream.is_over:
                    self._end(stream, stream.finish())
            elif not stream.is_over:
                self._take_response(stream, response, is_first=is_first)
        except StreamError as error:
            self._end(stream, EndReason.FAILED, f"the stock model: {error}", stop_now=True)

    def _take_response(self, stream: Stream, response: StockResponse, *, is_first: bool) -> None:
        if response.error is not None:
            fault = fault_of(response.error)
            self._end(stream, EndReason.FAILED, f"the stock model: {fault.value}: {response.error}")
            if fault is Fault.GONE:
                self._gone_in_a_row += 1
                if self._gone_in_a_row >= _GONE_IN_A_ROW:
                    self._failure = f"{self._gone_in_a_row} requests in a row: {response.error}"
            return
        self._gone_in_a_row = 0
        stream.phase = Phase.RUNNING
        event, reason = stream.take(response)
        self._step.add_tokens(stream, event, is_first=is_first)
        if self._info.may_pause:
            stream.blocks = self._blocks(stream.request, stream.produced_tokens)
        if reason is not None:
            self._end(stream, reason)

    def _end(self, stream: Stream, reason: EndReason, message: str = "", *, stop_now: bool = False) -> None:
        """Over for the service. The stock model normally ends such a stream by itself, unless it is to be stopped."""
        del self._active[stream.id]
        self._step.ends.append(EndEvent(id=stream.id, reason=reason, message=message))
        self._drain(stream, stop_now=stop_now)

    def _drain(self, stream: Stream, *, stop_now: bool) -> None:
        was_handed_over = stream.phase is not Phase.WAITING
        now = self._clock()
        stream.phase, stream.drains_since_s = Phase.DRAINING, now
        stream.stop_again_s = now + self._timing.stop_again_s
        if was_handed_over and stop_now:
            self._link.stop(stream)

    def _look_after_draining(self, now: float) -> None:
        for stream in self._link.open.values():
            if not stream.is_over or now < stream.stop_again_s:
                continue
            stream.stop_again_s = now + self._timing.stop_again_s
            self._link.stop(stream)
            if stream.phase is Phase.DRAINING and now - stream.drains_since_s >= self._timing.drain_cap_s:
                stream.phase = Phase.LOST
                _log.error("stream %s does not end; its place is taken to be free", stream.call.request_id)

    def _look_for_silence(self, now: float) -> None:
        silent_s = now - self._heard_s
        if self._active and silent_s >= self._timing.stall_s:
            self._failure = f"nothing from any of {len(self._active)} requests for {silent_s:.0f} s"
        if self._waiting and self._books.is_jammed:
            self._failure = f"{len(self._link.open)} streams that should have ended hold all threads"
        for stream in tuple(self._active.values()):
            silent_s = now - stream.heard_s
            if stream.phase is Phase.RUNNING and silent_s >= self._timing.stall_s:
                self._end(stream, EndReason.FAILED, f"the stock model: silent for {silent_s:.0f} s", stop_now=True)

    def _abandon(self) -> None:
        for stream in tuple(self._active.values()):
            self._drain(stream, stop_now=True)
        self._active.clear()
        self._waiting.clear()

    def _blocks(self, request: EngineRequest, produced_tokens: int = 0) -> int:
        """Beams share their prompt and nothing else. An engine that may pause reserves nothing ahead."""
        answer_tokens = min(produced_tokens + 1, request.max_tokens) if self._info.may_pause else request.max_tokens
        if request.beam_width == 1:
            return self._kv.blocks_for(len(request.prompt_ids) + answer_tokens)
        shared = self._kv.blocks_for(len(request.prompt_ids))
        return shared + request.beam_width * self._kv.blocks_for(answer_tokens)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError("the engine is closed")

    def _publish(self) -> None:
        # Replaced as a whole, so that another thread reads either the old numbers or the new ones.
        step = self._step
        self._stats = EngineStats(
            running=len(self._active),
            kv_total_blocks=self._info.kv_total_blocks,
            kv_free_blocks=max(0, self._info.kv_total_blocks - self._books.used_blocks(self._active.values())),
            steps=step.steps,
            last_step_ms=step.last_step_ms,
            last_batch_size=step.last_batch_size,
            tokens_out=step.tokens_out,
            prompt_tokens_in=step.prompt_tokens_in,
            queued=sum(stream.phase is Phase.WAITING for stream in self._waiting),
        )
