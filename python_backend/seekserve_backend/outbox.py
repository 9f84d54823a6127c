"""Carries answers from the engine loop to the clients on threads of its own, so that a step never waits for a send.

Each request is pinned to one lane, which keeps its responses in order. The queues are bounded: an engine that
produces faster than Triton takes is held back here instead of filling memory. A last answer waits as long as its sink
asks for, without holding up the lane's other requests.
"""

from __future__ import annotations

import collections
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
        """True when the client has left or its stream broke. Asks nobody any more once the sink is closed."""
        ...

    def hold_s(self) -> float:
        """How long the last answer has to wait from now on; 0 when it may go."""
        ...


Item = tuple[Sink, Chunk | ErrorLine]


class Outbox:
    """`put` collects, `flush` sends on: one wake-up of a lane for all that a step brought. `close` delivers, then ends.

    Every wake-up costs the engine's thread the interpreter lock for a moment, which is why they are counted.
    """

    def __init__(self, *, workers: int = 4, depth_per_worker: int = 4096) -> None:
        self._depth_per_worker = depth_per_worker
        self._lanes = [_Lane(f"seekserve-outbox-{i}") for i in range(workers)]
        self._collected: list[list[Item]] = [[] for _ in range(workers)]

    def put(self, lane: int, sink: Sink, answer: Chunk | ErrorLine) -> None:
        """Of the engine loop's thread alone; nothing is sent before `flush`."""
        self._collected[lane % len(self._lanes)].append((sink, answer))

    def flush(self) -> None:
        for n, items in enumerate(self._collected):
            if items:
                self._lanes[n].put(items, self._depth_per_worker)
                self._collected[n] = []

    def send(self, lane: int, sink: Sink, answer: Chunk | ErrorLine) -> None:
        """From any thread, at once."""
        self._lanes[lane % len(self._lanes)].put([(sink, answer)], self._depth_per_worker)

    @property
    def depth(self) -> int:
        return sum(lane.depth for lane in self._lanes)

    @property
    def send_age_s(self) -> float:
        """Of the oldest send that has not returned; one takes well under a millisecond.

        Triton's own health stays green when its gRPC front end stands still for good; this does not.
        """
        return max(lane.send_age_s for lane in self._lanes)

    def close(self, timeout_s: float) -> None:
        """Delivers what is queued; a lane that does not come to its end in time is left to die with the process."""
        self.flush()
        deadline = time.monotonic() + timeout_s
        for lane in self._lanes:
            lane.end()
        for lane in self._lanes:
            lane.join(max(0.0, deadline - time.monotonic()))


class _Lane:
    """One worker and what it has to send, in order."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[list[Item] | None] = queue.SimpleQueue()
        self._held: collections.deque[tuple[float, Item]] = collections.deque()
        """Last answers and when each may go. All wait about equally long, so the first in is the first out."""
        self._has_room = threading.Condition()
        self.depth = 0
        self._sending_since_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def send_age_s(self) -> float:
        since_s = self._sending_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def put(self, items: list[Item], most: int) -> None:
        """Waits while more than `most` answers are on their way: an engine must not outrun Triton without end."""
        with self._has_room:
            self._has_room.wait_for(lambda: self.depth < most)
            self.depth += len(items)
        self._queue.put(items)

    def end(self) -> None:
        self._queue.put(None)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _log.error("%s is stuck with %d answers", self._thread.name, self.depth)

    def _run(self) -> None:
        is_ending = False
        while not is_ending or self._held:
            items = self._next()
            is_ending = is_ending or items is None
            gone = sum(self._pass_on(item) for item in items or ())
            while self._held and self._held[0][0] <= time.monotonic():
                gone += self._pass_on(self._held.popleft()[1])
            with self._has_room:
                self.depth -= gone
                self._has_room.notify_all()

    def _next(self) -> list[Item] | None:
        wait_s = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
        try:
            return self._queue.get(timeout=wait_s)
        except queue.Empty:
            return []

    def _pass_on(self, item: Item) -> bool:
        """False when the item is held instead."""
        sink, answer = item
        self._sending_since_s = time.monotonic()
        try:
            is_last = not isinstance(answer, Chunk) or answer.finish_reason is not None
            if is_last and (hold_s := sink.hold_s()) > 0:
                self._held.append((time.monotonic() + hold_s, item))
                return False
            if isinstance(answer, Chunk):
                sink.send(answer)
            else:
                sink.error(answer)
        except Exception:  # one broken sink must not silence the lane's other requests
            _log.exception("a sink raised; its client may be left without an answer")
        finally:
            self._sending_since_s = None
        return True
