"""The worker: a thread that runs iterations over requests in real time.

Order of an iteration: take from the incoming queue up to the batch size, carry out cancellations, schedule within KV
blocks and the token budget, wait for the step, hand out tokens, note a row of statistics. It holds no reference to the
LLM object, and talks to results only through their `send`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorrt_llm.executor.utils import HAS_DEAD_ERROR, EngineDeadError, RequestError

from .answers import Answers
from .behaviour import BEHAVIOUR
from .blocks import BlockPool
from .rows import iteration_row
from .work import Work

__all__ = ["Engine", "Limits"]

_POLL_S = 0.05
_DEAD_SHUTDOWN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_beam_width: int
    kv_blocks: int
    tokens_per_block: int
    reuses_blocks: bool
    reserves_all: bool
    """GUARANTEED_NO_EVICT: the whole request's blocks before it starts."""
    by_priority: bool
    """Whether the waiting queue looks at priorities; else first come, first served."""
    chunks_prefill: bool
    stream_interval: int
    draft_tokens: int
    overlaps: bool
    is_torch: bool
    stats: bool
    request_stats: bool


class Engine:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.kv_blocks, limits.tokens_per_block, limits.reuses_blocks, time.monotonic)
        self.is_dead = False
        self._changed = threading.Condition()
        self._waiting: deque[Work] = deque()
        self._active: list[Work] = []
        self._cancelled: dict[int, float] = {}
        self._rows: list[dict[str, Any]] = []
        self._iteration = 0
        self._is_closing = False
        self._fresh: list[Work] = []
        self._paused = 0
        self._answers = Answers(tokens_per_block=limits.tokens_per_block, has_cumulative=not limits.is_torch)
        self._watch: Callable[[], bool] | None = None
        self._thread = threading.Thread(target=self._run, name="double-trtllm-engine", daemon=True)

    # called by the client

    def start(self, watch: Callable[[], bool] | None = None) -> None:
        """`watch` answers whether the other ranks live."""
        self._watch = watch
        self._thread.start()

    def submit(self, work: Work) -> None:
        with self._changed:
            self._waiting.append(work)
            self._changed.notify_all()

    def abort(self, request_id: int) -> None:
        if BEHAVIOUR.fresh("abort_lost"):
            return
        with self._changed:
            self._cancelled.setdefault(request_id, time.monotonic() + float(BEHAVIOUR.get("abort_delay_s")))
            self._changed.notify_all()

    def close_requests(self) -> None:
        """Cancels all that is left, as a shutdown does first."""
        with self._changed:
            for work in (*self._active, *self._waiting):
                self._cancelled[work.id] = 0.0

    def take_rows(self) -> list[dict[str, Any]]:
        with self._changed:
            rows, self._rows = self._rows, []
        return rows

    def shutdown(self, limit_s: float | None = None) -> None:
        """Waits for the thread without a limit, as the releases before EngineDeadError do."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self.is_dead and HAS_DEAD_ERROR:
            limit_s = _DEAD_SHUTDOWN_S if limit_s is None else min(limit_s, _DEAD_SHUTDOWN_S)
        if self._thread.is_alive():
            self._thread.join(limit_s)

    # the thread

    def _run(self) -> None:
        while True:
            BEHAVIOUR.refresh()
            if BEHAVIOUR.get("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if self._check_dead() or BEHAVIOUR.get("hang"):
                time.sleep(_POLL_S)
                if self._is_closing and self.is_dead and HAS_DEAD_ERROR:
                    return
                continue
            if self._is_closing:
                with self._changed:
                    self._cancel()
                time.sleep(float(BEHAVIOUR.get("shutdown_s")))
                return
            if not self._iterate():
                self._idle()

    def _check_dead(self) -> bool:
        if not self.is_dead and (BEHAVIOUR.get("dead") or (self._watch is not None and not self._watch())):
            self.is_dead = True
        if self.is_dead and HAS_DEAD_ERROR:
            with self._changed:
                lost = [*self._active, *self._waiting]
                self._active.clear()
                self._waiting.clear()
            for work in lost:
                self._answers.failed(work, EngineDeadError("the engine of the double is dead"))
        return self.is_dead

    def _idle(self) -> None:
        polls = BEHAVIOUR.is_polled or self._watch is not None
        with self._changed:
            if not self._is_closing:
                due = min(self._cancelled.values(), default=None)
                waits = _POLL_S if polls or self._active or BEHAVIOUR.get("hold_queue") else None
                if due is not None:
                    waits = min(_POLL_S, max(0.001, due - time.monotonic()))
                if waits is not None or not self._waiting:
                    self._changed.wait(waits)

    def _iterate(self) -> bool:
        with self._changed:
            queue_ms = self._fetch()
            self._cancel()
            batch = self._schedule()
            queued, queued_tokens = len(self._waiting), sum(len(work.prompt_ids) for work in self._waiting)
        if not batch:
            return False
        context_tokens = sum(tokens for _, tokens in batch if tokens)
        began = time.monotonic()
        delay_ms = float(BEHAVIOUR.get("step_ms")) + context_tokens * float(BEHAVIOUR.get("prefill_ms_per_token"))
        time.sleep(delay_ms / 1000)
        counts = self._advance(batch)
        self._iteration += 1
        if self.limits.stats:
            numbers = {
                **counts,
                "iter": self._iteration,
                "new": len(self._fresh),
                "paused": self._paused,
                "queue_ms": queue_ms,
                "queued": queued,
                "queued_tokens": queued_tokens,
                "context_tokens": context_tokens,
                "step_ms": (time.monotonic() - began) * 1000,
            }
            row = iteration_row(numbers, batch, self._active, self.pool, self.limits)
            with self._changed:
                self._rows.append(row)
        self._fresh = []
        self._paused = 0
        return True

    def _fetch(self) -> float:
        if BEHAVIOUR.get("hold_queue"):
            return 0.0
        waited = 0.0
        while self._waiting and len(self._active) < self.limits.max_batch_size:
            best = max(self._waiting, key=lambda work: work.priority) if self.limits.by_priority else self._waiting[0]
            self._waiting.remove(best)
            self._active.append(best)
            self._fresh.append(best)
            waited += (time.monotonic() - best.arrived_at) * 1000
        return waited

    def _cancel(self) -> None:
        now = time.monotonic()
        for request_id in [each for each, due in self._cancelled.items() if due <= now]:
            del self._cancelled[request_id]
            for work in [work for work in self._waiting if work.id == request_id]:
                self._waiting.remove(work)
                if BEHAVIOUR.get("queued_abort_ends"):
                    self._answers.cancelled(work, self._iteration)
            for work in [work for work in self._active if work.id == request_id]:
                self._leave(work)
                self._answers.cancelled(work, self._iteration)

    def _schedule(self) -> list[tuple[Work, int]]:
        """Requests of this step with their prompt tokens; 0 for those that generate."""
        budget = self.limits.max_num_tokens
        batch: list[tuple[Work, int]] = []
        for work in [work for work in self._active if not work.is_context]:
            if self._grow(work):
                batch.append((work, 0))
                budget -= len(work.sequences)
        for work in [work for work in self._active if work.is_context]:
            if work.holding is None and not self._begin(work):
                continue
            left = len(work.prompt_ids) - work.computed_tokens
            tokens = min(left, budget) if self.limits.chunks_prefill else left
            if tokens < 1 or tokens > budget:
                continue
            batch.append((work, tokens))
            budget -= tokens
        if not batch:
            self._pause()
        return batch

    def _pause(self) -> None:
        """Under MAX_UTILIZATION: the newest gives its blocks back and starts over, so that the others go on."""
        holders = [work for work in self._active if work.holding is not None]
        if len(holders) > 1:
            newest = holders[-1]
            assert newest.holding is not None
            self.pool.finish(newest.holding, (), newest.salt)
            newest.holding, newest.computed_tokens = None, 0
            self._paused += 1

    def _begin(self, work: Work) -> bool:
        whole = self.pool.blocks_for(len(work.prompt_ids) + work.max_tokens)
        promised = sum(
            max(0, self.pool.blocks_for(len(other.prompt_ids) + other.max_tokens) - len(other.holding.blocks))
            for other in self._active
            if other.holding is not None
        )
        if self.limits.reserves_all and whole + promised > self.pool.free_blocks:
            return False
        work.holding = self.pool.start(work.prompt_ids, work.salt, work.block_priority)
        if work.holding is None:
            return False
        work.computed_tokens = work.holding.reused * self.limits.tokens_per_block
        work.started_at = time.monotonic()
        work.first_iteration = self._iteration
        return True

    def _grow(self, work: Work) -> bool:
        assert work.holding is not None
        reach = min(work.longest_tokens + 1 + self.limits.draft_tokens, len(work.prompt_ids) + work.max_tokens)
        return self.pool.grow(work.holding, reach, work.decode_priority)

    def _advance(self, batch: list[tuple[Work, int]]) -> dict[str, Any]:
        completed = made = accepted = generations = 0
        for work, tokens in batch:
            error = self._ordered_error(work)
            if error is not None:
                self._leave(work)
                self._answers.failed(work, error)
                completed += 1
                continue
            work.computed_tokens += tokens
            if work.is_context:
                continue
            count = 1 if tokens else self._tokens_this_step(work)
            new = work.advance(count)
            made += new
            if not tokens:
                generations += 1
                accepted += max(0, new - len(work.sequences))
            work.first_token_at = work.first_token_at or time.monotonic()
            if work.is_finished:
                self._leave(work)
                completed += 1
                self._answers.last(work, self._iteration)
            elif work.streaming and work.sequences[0].unsent >= self.limits.stream_interval:
                self._answers.step(work, self._iteration)
        return {
            "completed": completed,
            "accepted_tokens": accepted,
            "draft_tokens": generations * self.limits.draft_tokens,
            "tokens_per_request": made / len(batch),
        }

    def _tokens_this_step(self, work: Work) -> int:
        ordered = BEHAVIOUR.get("tokens_per_step")
        if isinstance(ordered, list):
            return int(ordered[work.steps % len(ordered)])
        if ordered is not None:
            return int(ordered)
        return work.steps % (self.limits.draft_tokens + 1) + 1

    def _ordered_error(self, work: Work) -> RequestError | None:
        order: Mapping[str, Any] | None = BEHAVIOUR.get("request_error")
        if order is None:
            return None
        tail = list(order.get("prompt_tail", ()))
        if tail and list(work.prompt_ids[-len(tail) :]) != tail:
            return None
        if len(work.sequences[0].token_ids) < order.get("after_tokens", 0) or BEHAVIOUR.take("request_error") is None:
            return None
        return RequestError(order["message"])

    def _leave(self, work: Work) -> None:
        self._active.remove(work)
        if work.holding is not None:
            whole = [*work.prompt_ids[: work.computed_tokens], *work.sequences[0].token_ids]
            self.pool.finish(work.holding, whole, work.salt)
