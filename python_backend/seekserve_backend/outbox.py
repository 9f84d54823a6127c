"""Carries answers from the engine loop to the clients on threads of its own, so that a step never waits for a send.

Each request is pinned to one worker, which keeps its responses in order. The queues are bounded: an engine that
produces faster than Triton takes is held back here instead of filling memory.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Protocol

from .answers import Chunk
from .contract.refusal import ErrorLine

__all__ = ["Outbox", "Sink"]

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where one request's answers go. Implementations never raise and ignore everything after the first terminal."""

    def send(self, chunk: Chunk) -> None:
        """Sends a chunk; one with a finish reason is the last, and closes the sink."""
        ...

    def error(self, line: ErrorLine) -> None:
        """Sends the error as the last answer, and closes the sink."""
        ...

    def is_cancelled(self) -> bool:
        """True when the client has left. False, without asking anybody, once the sink is closed."""
        ...


class Outbox:
    """`put` from any thread; `close` delivers what is queued, then ends the workers."""

    def __init__(self, *, workers: int = 2, depth_per_worker: int = 4096) -> None:
        self._queues: list[queue.Queue[tuple[Sink, Chunk | ErrorLine] | None]] = [
            queue.Queue(depth_per_worker) for _ in range(workers)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(q,), name=f"seekserve-outbox-{i}", daemon=True)
            for i, q in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, lane: int, sink: Sink, answer: Chunk | ErrorLine) -> None:
        self._queues[lane % len(self._queues)].put((sink, answer))

    @property
    def depth(self) -> int:
        return sum(q.qsize() for q in self._queues)

    def close(self, timeout_s: float) -> None:
        """Delivers what is queued; a lane that does not come to its end in time is left to die with the process."""
        deadline = time.monotonic() + timeout_s
        for q in self._queues:
            try:
                q.put(None, timeout=max(0.0, deadline - time.monotonic()))
            except queue.Full:
                _log.error("an outbox lane is stuck with %d answers in it", q.qsize())
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    @staticmethod
    def _run(q: queue.Queue[tuple[Sink, Chunk | ErrorLine] | None]) -> None:
        while (item := q.get()) is not None:
            sink, answer = item
            try:
                if isinstance(answer, Chunk):
                    sink.send(answer)
                else:
                    sink.error(answer)
            except Exception:  # one broken sink must not silence the lane's other requests
                _log.exception("a sink raised; its client may be left without an answer")
