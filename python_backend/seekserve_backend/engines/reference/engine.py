"""The CPU engine behind the port: continuous batching of ragged requests over a paged latent cache.

Blocks for prompt + max_tokens are taken when a request is added, so a running request never waits for memory.
Invariant: each added request ends in exactly one EndEvent, or with the EngineError that ends them all, and its blocks
are free by then.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from ...contract.bundle import Bundle, KvCache, Limits
from ..port import (
    EndEvent,
    EndReason,
    EngineError,
    EngineInfo,
    EngineRequest,
    EngineStats,
    EngineStepReport,
    TokenEvent,
)
from .batch import Chunk, group_packs, plan_step
from .blocks import BlockPool
from .checks import request_problems
from .runner import ModelRunner
from .running import Running
from .weights import load_model

__all__ = ["ReferenceEngine"]

_PACK_TOKENS = 128
_PACK_CONTEXT_TOKENS = 16384
# Operations of a smaller model are shorter than the meeting of threads at their end: on a busy two-core host, two
# threads gave a tenth of one thread's tokens/s.
_ONE_THREAD_BELOW_PARAMETERS = 50_000_000


class ReferenceEngine:
    """An `Engine` (see `engines/port.py`): the constructor loads a bundle, `of_model` takes a model that is loaded."""

    def __init__(
        self, bundle_dir: Path, bundle: Bundle, *, threads: int | None = None, compute_dtype: str = "float32"
    ) -> None:
        """`threads` of torch for this process, None: one for a small model, else torch's default.

        Raises EngineError for a bundle it cannot run.
        """
        if bundle.engine != "reference":
            raise EngineError(f"{bundle_dir} is built for the engine {bundle.engine!r}, this is 'reference'")
        loaded = load_model(bundle_dir / "weights", compute_dtype=compute_dtype)
        if threads is None and loaded.model.num_parameters() < _ONE_THREAD_BELOW_PARAMETERS:
            threads = 1
        if threads is not None:
            torch.set_num_threads(threads)
        self._set_up(loaded.model, loaded.eos_ids, bundle.limits, bundle.kv)
        if self._runner.pages.bytes_per_token != bundle.kv.bytes_per_token:
            raise EngineError(
                f"{bundle_dir}: bundle.json says {bundle.kv.bytes_per_token} KV bytes per token, its weights imply "
                f"{self._runner.pages.bytes_per_token} in {bundle.kv.dtype}: rebuild the bundle"
            )

    @classmethod
    def of_model(cls, model: Any, *, eos_ids: tuple[int, ...], limits: Limits, kv: KvCache) -> ReferenceEngine:
        """`model` is a transformers DeepseekV2/V3ForCausalLM in eval mode; its dtype is the one computed in."""
        engine = cls.__new__(cls)
        engine._set_up(model, eos_ids, limits, kv)
        return engine

    def _set_up(self, model: Any, eos_ids: tuple[int, ...], limits: Limits, kv: KvCache) -> None:
        positions = int(model.config.max_position_embeddings)
        if limits.max_seq_len_tokens > positions:
            raise EngineError(f"max_seq_len_tokens is {limits.max_seq_len_tokens}, the model has {positions} positions")
        self._limits = limits
        self._kv = kv
        self._pool = BlockPool(kv.capacity_blocks)
        self._runner = ModelRunner(
            model,
            kv_dtype=kv.dtype,
            blocks=kv.capacity_blocks,
            block_tokens=kv.block_tokens,
            max_batch_size=limits.max_batch_size,
            max_seq_len_tokens=limits.max_seq_len_tokens,
        )
        self._info = EngineInfo(
            kind="reference",
            max_seq_len_tokens=limits.max_seq_len_tokens,
            max_batch_size=limits.max_batch_size,
            block_tokens=kv.block_tokens,
            kv_total_blocks=kv.capacity_blocks,
            vocab_size=int(model.config.vocab_size),
            eos_ids=eos_ids,
            repeats_seeds=True,
        )
        self._running: dict[str, Running] = {}
        self._free_rows = list(range(limits.max_batch_size - 1, -1, -1))
        self._steps = self._tokens_out = self._prompt_tokens_in = self._last_batch_size = 0
        self._last_step_ms = 0.0
        self._ended_s: float | None = None
        """Of the last step, while requests are running."""
        self._is_closed = False
        self._publish()

    @property
    def info(self) -> EngineInfo:
        return self._info

    def can_add(self, request: EngineRequest) -> bool:
        return bool(self._free_rows) and self._pool.can_take(self._blocks_needed(request))

    def add(self, request: EngineRequest) -> None:
        """Raises ValueError as the port says, and when `can_add` is false."""
        self._check_open()
        problems = request_problems(request, self._info, self._kv)
        if request.id in self._running:
            problems.append("a request with this id is running")
        if problems:
            raise ValueError(f"request {request.id}: " + "; ".join(problems))
        if not self.can_add(request):
            raise ValueError(
                f"request {request.id} needs a batch slot and {self._blocks_needed(request)} KV blocks; "
                f"{len(self._free_rows)} slots and {self._pool.free_blocks} blocks are free: ask can_add first"
            )
        # Slot and blocks last: what raises before that (a sampler, memory for the ids) has taken nothing.
        running = Running(request, row=self._free_rows[-1], eos_ids=self._info.eos_ids)
        running.blocks = self._pool.take(self._blocks_needed(request))
        self._free_rows.pop()
        self._runner.assign(running.row, running.blocks)
        self._running[request.id] = running
        self._publish()

    def cancel(self, request_id: str) -> None:
        running = self._running.get(request_id)
        if running is not None:
            running.is_cancelled = True

    def step(self, timeout_s: float) -> EngineStepReport:
        """Never waits: requests come from the calling thread alone, so an idle engine stays idle until it returns.

        A step begins where the last one ended: what the caller does between two steps keeps every request waiting too.
        """
        self._check_open()
        started = time.perf_counter() if self._ended_s is None else self._ended_s
        step = _Step()
        for running in [running for running in self._running.values() if running.is_cancelled]:
            self._end(step, running, EndReason.CANCELLED)
        chunks = plan_step(
            tuple(self._running.values()),
            max_num_tokens=self._limits.max_num_tokens,
            prefill_chunk_tokens=self._limits.prefill_chunk_tokens,
        )
        prefill_tokens = sum(chunk.tokens for chunk in chunks if not chunk.sequence.is_decoding)
        try:
            for pack in group_packs(chunks, pack_tokens=_PACK_TOKENS, pack_context_tokens=_PACK_CONTEXT_TOKENS):
                self._run_pack(step, pack)
        except EngineError:
            for running in tuple(self._running.values()):
                self._release(running)
            self._publish()
            raise
        ended = time.perf_counter()
        step_ms = (ended - started) * 1e3
        self._ended_s = ended if self._running else None
        if chunks:
            self._steps += 1
            self._last_step_ms, self._last_batch_size = step_ms, len(chunks)
        self._prompt_tokens_in += prefill_tokens
        self._tokens_out += len(step.tokens)
        self._publish()
        return EngineStepReport(
            step_ms=step_ms,
            batch_size=len(chunks),
            prefill_tokens=prefill_tokens,
            tokens=tuple(step.tokens),
            ends=tuple(step.ends),
        )

    def stats(self) -> EngineStats:
        return self._stats

    def close(self) -> None:
        """Idempotent; running requests are dropped."""
        for running in tuple(self._running.values()):
            self._release(running)
        self._is_closed = True
        self._publish()

    def check_integrity(self) -> None:
        """Raises AssertionError when blocks or batch slots do not add up."""
        self._pool.check_integrity()
        held = sum(len(running.blocks) for running in self._running.values())
        assert held + self._pool.free_blocks == self._pool.total_blocks, (held, self._pool.free_blocks)
        rows = sorted([*self._free_rows, *(running.row for running in self._running.values())])
        assert rows == list(range(self._limits.max_batch_size)), rows

    def _run_pack(self, step: _Step, pack: list[Chunk[Running]]) -> None:
        """One pass for all; when that fails, one for each, so that a request which breaks the pass fails alone."""
        logits, error = self._logits(pack)
        if logits is not None:
            self._advance(step, pack, logits)
        elif len(pack) == 1:
            self._end(step, pack[0].sequence, EndReason.FAILED, str(error))
        else:
            alone = [(chunk, *self._logits([chunk])) for chunk in pack]
            if all(isinstance(fault, RuntimeError) for _, _, fault in alone):
                raise EngineError(f"no forward pass works any more: {alone[0][2]}") from alone[0][2]
            for chunk, row, fault in alone:
                if row is None:
                    self._end(step, chunk.sequence, EndReason.FAILED, str(fault))
                else:
                    self._advance(step, [chunk], row)

    def _logits(self, pack: list[Chunk[Running]]) -> tuple[torch.Tensor | None, Exception | None]:
        try:
            logits = self._runner.logits(pack)
        except (RuntimeError, IndexError) as error:
            return None, error
        if not bool(torch.isfinite(logits).all()):
            return None, ArithmeticError("the model's logits are not finite")
        return logits, None

    def _advance(self, step: _Step, pack: list[Chunk[Running]], logits: torch.Tensor) -> None:
        best = logits.argmax(dim=-1).tolist()
        for row, chunk in enumerate(pack):
            running = chunk.sequence
            yields_token = chunk.yields_token
            running.cached_tokens = chunk.context_tokens
            running.last_step = self._steps
            if not yields_token:
                continue
            token = best[row]
            if not running.sampler.is_plain_greedy:
                try:
                    token = running.sampler.pick(running.ids[: running.known_tokens], logits[row])
                except (RuntimeError, ValueError) as error:
                    self._end(step, running, EndReason.FAILED, f"sampling failed: {error}")
                    continue
            self._take_token(step, running, token)

    def _take_token(self, step: _Step, running: Running, token: int) -> None:
        if token in running.stop_ids:
            self._end(step, running, EndReason.STOP)
            return
        running.append(token)
        step.tokens.append(TokenEvent(id=running.id, token_ids=(token,)))
        if running.produced_tokens == running.request.max_tokens:
            self._end(step, running, EndReason.LENGTH)

    def _end(self, step: _Step, running: Running, reason: EndReason, message: str = "") -> None:
        self._release(running)
        step.ends.append(EndEvent(id=running.id, reason=reason, message=message))

    def _release(self, running: Running) -> None:
        del self._running[running.id]
        self._pool.give_back(running.blocks)
        self._free_rows.append(running.row)

    def _blocks_needed(self, request: EngineRequest) -> int:
        return self._kv.blocks_for(len(request.prompt_ids) + request.max_tokens)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError("the engine is closed")

    def _publish(self) -> None:
        # Replaced as a whole, so that another thread reads either the old numbers or the new ones.
        self._stats = EngineStats(
            running=len(self._running),
            kv_total_blocks=self._pool.total_blocks,
            kv_free_blocks=self._pool.free_blocks,
            steps=self._steps,
            last_step_ms=self._last_step_ms,
            last_batch_size=self._last_batch_size,
            tokens_out=self._tokens_out,
            prompt_tokens_in=self._prompt_tokens_in,
        )


class _Step:
    """Events gathered while a step runs."""

    __slots__ = ("ends", "tokens")

    def __init__(self) -> None:
        self.tokens: list[TokenEvent] = []
        self.ends: list[EndEvent] = []
