"""Signs of life for clients that wait: an empty response with `queue_ms` each so many ms, until the first token.

Only for requests that asked. On a thread of its own, with a budget: when more are due than it may send, intervals
stretch, and tokens do not wait. They go through the request's lane, which keeps its responses in order.
"""

from __future__ import annotations

import heapq
import logging
import threading

from .desk import Desk
from .live import Live

__all__ = ["Heartbeats"]

_log = logging.getLogger(__name__)
_AT_ONCE = 20
_LONGEST_LOOK_S = 5.0
"""After this a request is looked at in any case: one that has ended is not held until its next sign of life is due."""
_PAUSE_S = 0.02
"""After so many at once: at most a thousand in a second, each about as dear as a token's response."""


class Heartbeats:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, float, Live]] = []
        """(when to look, number, when a sign of life is due, whose)"""
        self._watched = 0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="seekserve-heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def watch(self, live: Live) -> None:
        """Of a request that asked for them."""
        assert live.inbound.heartbeat_ms is not None
        with self._changed:
            now = self._desk.clock()
            self._push(live, now + live.inbound.heartbeat_ms / 1000.0, now)
            self._changed.notify()

    def _push(self, live: Live, due_s: float, now: float) -> None:
        self._watched += 1
        heapq.heappush(self._due, (min(due_s, now + _LONGEST_LOOK_S), self._watched, due_s, live))

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._is_stopping:
                    self._changed.wait(self._wait_s())
                if self._is_stopping:
                    return
                now = self._desk.clock()
                ready = self._take(now)
            for live in ready:
                self._beat(live, now)
            if len(ready) == _AT_ONCE:
                threading.Event().wait(_PAUSE_S)

    def _wait_s(self) -> float | None:
        return max(0.0, self._due[0][0] - self._desk.clock()) if self._due else None

    def _take(self, now: float) -> list[Live]:
        ready: list[Live] = []
        while self._due and len(ready) < _AT_ONCE and self._due[0][0] <= now:
            _, _, due_s, live = heapq.heappop(self._due)
            if not _is_waiting(live):
                continue
            if due_s > now:
                self._push(live, due_s, now)
                continue
            ready.append(live)
            assert live.inbound.heartbeat_ms is not None
            self._push(live, now + live.inbound.heartbeat_ms / 1000.0, now)
        return ready

    def _beat(self, live: Live, now: float) -> None:
        try:
            self._desk.outbox.send(live.lane, live.sink, live.heartbeat(now))
        except Exception:
            _log.exception("no heartbeat for request %s", live.id)


def _is_waiting(live: Live) -> bool:
    if live.is_closed or live.is_away:
        return False
    return live.work is None or not live.work.has_begun
