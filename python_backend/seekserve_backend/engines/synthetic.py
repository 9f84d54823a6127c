"""An engine without a model: its step model in real time, or no time at all, and an answer that says it is synthetic.

For measuring the path around an engine and for drills. It is never chosen by default; its kind, its text and the
server's metrics say what it is. `min_tokens` of a request, when given, is the exact length of its answer, so that a
load generator can ask for known lengths without telling the scheduler through max_tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ..contract.step_model import StepModel
from .port import EndEvent, EndReason, EngineInfo, EngineRequest, EngineStats, EngineStepReport, TokenEvent
from .synthetic_faults import Faults

__all__ = ["Pace", "SyntheticEngine"]

# What a sleep may oversleep on an idle machine; the rest of the wait is spun away.
_SPIN_S = 0.0005


class Pace:
    """Lets a step take its time, to a fraction of a millisecond.

    A step begins where the last one ended, as on a device that works on while its caller handles results: what the
    caller spends between two steps is part of the next one, up to the whole of it.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._end_s: float | None = None

    def rest(self) -> None:
        """There is nothing to do; the next step begins when it is asked for."""
        self._end_s = None

    def wait(self, step_ms: float) -> float:
        """Returns when the step is over; how long it took, in ms."""
        now, step_s = self._clock(), step_ms / 1000.0
        begin_s = now if self._end_s is None else max(self._end_s, now - step_s)
        until_s = begin_s + step_s
        if until_s - now > _SPIN_S:
            self._sleep(until_s - now - _SPIN_S)
        while (now := self._clock()) < until_s:
            self._sleep(0.0)
        self._end_s = now
        return 1000.0 * (now - begin_s)


class _Running:
    __slots__ = ("blocks", "is_paused", "length", "made", "request", "to_prefill")

    def __init__(self, request: EngineRequest, blocks: int) -> None:
        self.request = request
        self.blocks = blocks
        self.length = min(request.sampling.min_tokens or request.max_tokens, request.max_tokens)
        self.made = 0
        self.to_prefill = len(request.prompt_ids)
        self.is_paused = False

    @property
    def held_tokens(self) -> int:
        return len(self.request.prompt_ids) - self.to_prefill + self.made

    @property
    def next_tokens(self) -> int:
        """Held when its next token is made."""
        return len(self.request.prompt_ids) + self.made + 1

    def pause(self) -> None:
        """It will be read again, its answer so far as well."""
        self.is_paused = True
        self.to_prefill = len(self.request.prompt_ids) + self.made
        self.blocks = 0

    @property
    def end_reason(self) -> EndReason:
        """Short of max_tokens it ended by itself."""
        return EndReason.LENGTH if self.made == self.request.max_tokens else EndReason.STOP


class SyntheticEngine:
    """One token a step for every request whose prompt is read, oldest prompt first. `step_model` None: no time at all.

    Where `info` says that it may pause, a full cache stops whoever began last, to be read again once there is room.
    The tokens of an answer are `says`, again and again, or `token_id` where that is empty.
    """

    def __init__(
        self,
        info: EngineInfo,
        *,
        token_id: int,
        chunk_tokens: int,
        step_model: StepModel | None = None,
        says: Sequence[int] = (),
        faults: Faults | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._info = info
        self._says = tuple(says) or (token_id,)
        self._chunk_tokens = chunk_tokens
        self._model = step_model
        self._faults = faults
        self._pace = pace or Pace()
        self._running: dict[str, _Running] = {}
        self._cancelled: list[str] = []
        self._free_blocks = info.kv_total_blocks
        self._wake = threading.Event()
        self._steps = self._tokens_out = self._prompt_tokens_in = self._last_batch = 0
        self._last_step_ms = 0.0
        self._paused = 0

    @property
    def info(self) -> EngineInfo:
        return self._info

    def _blocks(self, request: EngineRequest) -> int:
        answer_tokens = 1 if self._info.may_pause else request.max_tokens
        return self._blocks_for(len(request.prompt_ids) + answer_tokens)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._info.block_tokens)

    def can_add(self, request: EngineRequest) -> bool:
        return len(self._running) < self._info.max_batch_size and self._blocks(request) <= self._free_blocks

    def add(self, request: EngineRequest) -> None:
        if request.id in self._running:
            raise ValueError(f"request id {request.id!r} is already running")
        total = len(request.prompt_ids) + request.max_tokens
        if not request.prompt_ids or total > self._info.max_seq_len_tokens:
            raise ValueError(f"{total} tokens where this engine takes 2 to {self._info.max_seq_len_tokens}")
        if not self.can_add(request):
            raise ValueError(f"no room: {self._blocks(request)} blocks needed, {self._free_blocks} free")
        blocks = self._blocks(request)
        self._free_blocks -= blocks
        self._running[request.id] = _Running(request, blocks)
        self._wake.set()

    def cancel(self, request_id: str) -> None:
        self._cancelled.append(request_id)
        self._wake.set()

    def step(self, timeout_s: float) -> EngineStepReport:
        if not self._running and not self._cancelled:
            self._pace.rest()
            self._wake.wait(timeout_s)
        self._wake.clear()
        ends = [EndEvent(id=i, reason=EndReason.CANCELLED) for i in self._cancelled if self._remove(i)]
        self._cancelled.clear()
        slowdown = 1.0
        if self._faults is not None:
            slowdown = self._faults.strike()
            if self._faults.has_lost_kv():
                ends += self._lose_everything()
        if self._info.may_pause:
            self._share_cache()
        batch_size, held_tokens = len(self._running), sum(each.held_tokens for each in self._running.values())
        decoding, chunks, prefill, tokens, ended = self._advance()
        ends += ended
        step_ms = self._take_time(decoding, held_tokens, chunks, slowdown)
        self._steps += 1
        self._last_batch, self._last_step_ms = batch_size, step_ms
        self._tokens_out += len(tokens)
        self._prompt_tokens_in += prefill
        return EngineStepReport(
            step_ms=step_ms, batch_size=batch_size, prefill_tokens=prefill, tokens=tuple(tokens), ends=tuple(ends)
        )

    def _share_cache(self) -> None:
        """Blocks for the next token of each, in the order in which they began; who finds none left waits for them."""
        free = self._info.kv_total_blocks
        is_full = False
        for entry in self._running.values():
            blocks = self._blocks_for(entry.next_tokens)
            is_full = is_full or blocks > free
            if not is_full:
                entry.blocks, entry.is_paused = blocks, False
                free -= blocks
            elif not entry.is_paused:
                entry.pause()
        self._free_blocks = free
        self._paused = sum(entry.is_paused for entry in self._running.values())

    def _advance(self) -> tuple[int, list[tuple[int, int]], int, list[TokenEvent], list[EndEvent]]:
        """(requests that decoded, chunks that were read, of which prompts for the first time, tokens, ends)"""
        chunks: list[tuple[int, int]] = []
        tokens: list[TokenEvent] = []
        ends: list[EndEvent] = []
        budget, decoding, prefill = self._chunk_tokens, 0, 0
        for request_id, entry in list(self._running.items()):
            if entry.is_paused:
                continue
            if entry.to_prefill:
                take = min(budget, entry.to_prefill)
                if take:
                    chunks.append((entry.held_tokens, take))
                    prefill += 0 if entry.made else take
                budget -= take
                entry.to_prefill -= take
                if entry.to_prefill:
                    continue
            else:
                decoding += 1
            tokens.append(TokenEvent(id=request_id, token_ids=(self._says[entry.made % len(self._says)],)))
            entry.made += 1
            if entry.made == entry.length:
                self._remove(request_id)
                ends.append(EndEvent(id=request_id, reason=entry.end_reason))
        return decoding, chunks, prefill, tokens, ends

    def _take_time(self, decoding: int, held_tokens: int, chunks: list[tuple[int, int]], slowdown: float) -> float:
        if self._model is None or not (decoding or chunks):
            return 0.0
        modelled_ms = self._model.step_ms(decode_tokens=decoding, kv_tokens=held_tokens, chunks=tuple(chunks))
        return self._pace.wait(slowdown * modelled_ms)

    def _lose_everything(self) -> list[EndEvent]:
        lost = list(self._running)
        for request_id in lost:
            self._remove(request_id)
        return [EndEvent(id=i, reason=EndReason.FAILED, message="its KV blocks were lost (drill)") for i in lost]

    def _remove(self, request_id: str) -> bool:
        entry = self._running.pop(request_id, None)
        if entry is None:
            return False
        self._free_blocks += entry.blocks
        return True

    def stats(self) -> EngineStats:
        return EngineStats(
            running=len(self._running),
            kv_total_blocks=self._info.kv_total_blocks,
            kv_free_blocks=self._free_blocks,
            steps=self._steps,
            last_step_ms=self._last_step_ms,
            last_batch_size=self._last_batch,
            tokens_out=self._tokens_out,
            prompt_tokens_in=self._prompt_tokens_in,
            queued=self._paused if self._info.may_pause else None,
        )

    def close(self) -> None:
        self._running.clear()
