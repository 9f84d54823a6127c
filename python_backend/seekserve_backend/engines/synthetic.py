"""An engine without a model: the same token again and again, at a pace given by a step model, or at no cost at all.

For measuring the path around an engine. It is never chosen by default and its kind says what it is.
"""

from __future__ import annotations

import threading
import time

from ..contract.step_model import StepModel
from .port import EndEvent, EndReason, EngineInfo, EngineRequest, EngineStats, EngineStepReport, TokenEvent

__all__ = ["SyntheticEngine"]


class _Running:
    __slots__ = ("blocks", "left", "request", "to_prefill")

    def __init__(self, request: EngineRequest, blocks: int) -> None:
        self.request = request
        self.blocks = blocks
        self.left = request.max_tokens
        self.to_prefill = len(request.prompt_ids)


class SyntheticEngine:
    """Emits `token_id` once per step for every request whose prompt is done. `step_model` None: steps take no time."""

    def __init__(
        self, info: EngineInfo, *, token_id: int, chunk_tokens: int, step_model: StepModel | None = None
    ) -> None:
        self._info = info
        self._token_id = token_id
        self._chunk_tokens = chunk_tokens
        self._model = step_model
        self._running: dict[str, _Running] = {}
        self._cancelled: list[str] = []
        self._free_blocks = info.kv_total_blocks
        self._wake = threading.Event()
        self._steps = self._tokens_out = self._prompt_tokens_in = self._last_batch = 0
        self._last_step_ms = 0.0

    @property
    def info(self) -> EngineInfo:
        return self._info

    def _blocks(self, request: EngineRequest) -> int:
        return -(-(len(request.prompt_ids) + request.max_tokens) // self._info.block_tokens)

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
            self._wake.wait(timeout_s)
        self._wake.clear()
        ends = [EndEvent(id=i, reason=EndReason.CANCELLED) for i in self._cancelled if self._remove(i)]
        self._cancelled.clear()
        chunks: list[tuple[int, int]] = []
        tokens: list[TokenEvent] = []
        budget = self._chunk_tokens
        batch_size = len(self._running)
        for request_id, entry in list(self._running.items()):
            if entry.to_prefill:
                take = min(budget, entry.to_prefill)
                if take:
                    chunks.append((len(entry.request.prompt_ids) - entry.to_prefill, take))
                budget -= take
                entry.to_prefill -= take
                if entry.to_prefill:
                    continue
            tokens.append(TokenEvent(id=request_id, token_ids=(self._token_id,)))
            entry.left -= 1
            if not entry.left:
                self._remove(request_id)
                ends.append(EndEvent(id=request_id, reason=EndReason.LENGTH))
        step_ms = self._sleep(len(tokens), chunks)
        prefill = sum(c for _, c in chunks)
        self._steps += 1
        self._last_batch, self._last_step_ms = batch_size, step_ms
        self._tokens_out += len(tokens)
        self._prompt_tokens_in += prefill
        return EngineStepReport(
            step_ms=step_ms, batch_size=batch_size, prefill_tokens=prefill, tokens=tuple(tokens), ends=tuple(ends)
        )

    def _sleep(self, decode_tokens: int, chunks: list[tuple[int, int]]) -> float:
        if self._model is None or not (decode_tokens or chunks):
            return 0.0
        used = (self._info.kv_total_blocks - self._free_blocks) * self._info.block_tokens
        step_ms = self._model.step_ms(decode_tokens=decode_tokens, kv_tokens=used, chunks=tuple(chunks))
        time.sleep(step_ms / 1000)
        return step_ms

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
        )

    def close(self) -> None:
        self._running.clear()
