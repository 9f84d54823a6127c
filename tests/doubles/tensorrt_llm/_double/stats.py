"""Iteration statistics: one row for each iteration that ran a batch, and the single queue a client drains them from."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from .behaviour import BEHAVIOUR
from .guard import Guarded, violation
from .profile import PROFILE
from .queues import ResultQueue, running_loop

__all__ = ["IterationResult", "StatsFeed", "stats_row"]

logger = logging.getLogger("tensorrt_llm")
_GPU_BYTES = 60 * 2**30


class IterationResult(Guarded):
    """Yields rows until none came for the timeout, then nothing until the next submission re-arms it."""

    def __init__(self, feed: StatsFeed | None) -> None:
        self._feed = feed
        self._timeout_s = 2.0
        self._done = feed is None

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self._done or self._feed is None:
            raise StopAsyncIteration
        if self._timeout_s <= 0:
            if self._feed.queue.is_empty():
                raise asyncio.QueueEmpty
            return dict(await self._feed.queue.get())
        self._feed.enter_reader(asyncio.current_task())
        try:
            row = await asyncio.wait_for(self._feed.queue.get(), self._timeout_s)
        except asyncio.TimeoutError:
            self._done = True
            raise StopAsyncIteration from None
        finally:
            self._feed.leave_reader()
        return dict(row)


class StatsFeed:
    """Made at the first submission, and bound to its loop. `fetch` takes the rows that the engine has gathered."""

    def __init__(self, fetch: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self.queue = ResultQueue(running_loop())
        self.result = IterationResult(self)
        self._fetch = fetch
        self._kind: str | None = None
        self._reader: Any = None
        self._is_over = threading.Event()
        threading.Thread(target=self._pump, name="double-trtllm-stats", daemon=True).start()

    def rearm(self) -> None:
        self.result._done = False

    def close(self) -> None:
        self._is_over.set()

    def drain(self, timeout_s: float) -> list[dict[str, Any]]:
        self._one_kind("get_stats")
        rows: list[dict[str, Any]] = []
        while not self.result._done:
            try:
                rows.append(dict(self.queue.get_blocking(timeout_s)))
            except queue.Empty:
                self.result._done = True
        return rows

    def iterate(self, timeout_s: float) -> IterationResult:
        self._one_kind("get_stats_async")
        self.result._timeout_s = timeout_s
        return self.result

    def enter_reader(self, task: Any) -> None:
        if self._reader is not None:
            violation("two-stats-consumers", "two tasks wait for statistics at the same time")
        self._reader = task

    def leave_reader(self) -> None:
        self._reader = None

    def _one_kind(self, kind: str) -> None:
        if self._kind not in (None, kind):
            violation("two-stats-consumers", f"{kind} is used beside {self._kind}: they share one queue")
        self._kind = kind

    def _pump(self) -> None:
        while not self._is_over.wait(float(BEHAVIOUR.get("stats_delay_s"))):
            for row in self._fetch():
                self.queue.put(row)


def stats_row(numbers: Mapping[str, Any], *, is_torch: bool, has_speculation: bool) -> dict[str, Any]:
    """The row of the profile's era. `numbers` are the engine's own names."""
    n = numbers
    known = n["reused"] + n["missed"]
    row: dict[str, Any] = {
        "timestamp": datetime.fromtimestamp(time.time()).strftime("%m-%d-%Y %H:%M:%S.%f"),
        "iter": n["iter"],
        "iterLatencyMS": n["step_ms"] * (2 if n["overlaps"] else 1),
        "newActiveRequestsQueueLatencyMS": n["queue_ms"],
        "numNewActiveRequests": n["new"],
        "numActiveRequests": n["active"],
        "numQueuedRequests": n["queued"],
        "numCompletedRequests": n["completed"],
        "maxNumActiveRequests": n["max_active"],
        "gpuMemUsage": _GPU_BYTES,
        "cpuMemUsage": 0,
        "pinnedMemUsage": 0,
        "kvCacheStats": {
            "maxNumBlocks": n["kv_total"],
            "freeNumBlocks": n["kv_free"],
            "usedNumBlocks": n["kv_used"],
            "tokensPerBlock": n["tokens_per_block"],
            "allocTotalBlocks": n["allocated"],
            "allocNewBlocks": n["allocated"],
            "reusedBlocks": n["reused"],
            "missedBlocks": n["missed"],
            "cacheHitRate": n["reused"] / known if known else 0.0,
        },
        "inflightBatchingStats": {
            "numScheduledRequests": n["scheduled"],
            "numContextRequests": n["contexts"],
            "numGenRequests": n["generations"],
            "numPausedRequests": n["paused"],
            "numCtxTokens": n["context_tokens"],
            "microBatchId": 0,
            "avgNumDecodedTokensPerIter": 0.0 if is_torch else n["tokens_per_request"],
        },
        "staticBatchingStats": dict.fromkeys(
            ("numScheduledRequests", "numContextRequests", "numCtxTokens", "numGenTokens", "emptyGenSlots"), 0
        ),
        "specDecodingStats": _speculation(n) if has_speculation else None,
    }
    for kind, top in (("maxBatchSize", n["max_batch"]), ("maxNumTokens", n["max_tokens"])):
        for which in ("Static", "TunerRecommended", "Runtime"):
            row[kind + which] = 0 if is_torch else top
    if not is_torch:
        row["crossKvCacheStats"] = None
    if PROFILE.stats == "P13" and is_torch:
        _add_p13(row, n)
    if n["requests"] is not None:
        row["requestStats"] = n["requests"]
    for key in BEHAVIOUR.get("stats_null"):
        row[key] = None
    return row


def _speculation(n: Mapping[str, Any]) -> dict[str, Any]:
    generations = max(1, n["generations"])
    return {
        "numDraftTokens": n["draft_tokens"],
        "numAcceptedTokens": n["accepted_tokens"],
        "numRequestsWithDraftTokens": n["generations"],
        "acceptanceLength": 1 + n["accepted_tokens"] / generations,
        "iterLatencyMS": n["step_ms"],
        "draftOverhead": 0.0,
    }


def _add_p13(row: dict[str, Any], n: Mapping[str, Any]) -> None:
    row["schedulerMode"] = "overlap" if n["overlaps"] else "non_overlap"
    row["hostStepTimeMS"] = row["prevDeviceStepTimeMS"] = row["gpuForwardTimeMS"] = n["step_ms"]
    row["inflightBatchingStats"].update(
        numCtxKvTokens=n["context_tokens"],
        numGenKvTokens=n["generation_kv_tokens"],
        numQueuedContextRequests=n["queued"],
        numQueuedCtxTokens=n["queued_tokens"],
        numQueuedGenRequests=0,
        numQueuedGenKvTokens=0,
        numPausedKvTokens=0,
    )
