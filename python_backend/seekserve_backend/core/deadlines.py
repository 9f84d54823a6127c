"""Which requests are due: a heap with lazy deletion, so that a look costs nothing while nobody is late.

Equal deadlines come out in the order in which they were set. The heap never holds more than about twice the live ids.
"""

from __future__ import annotations

import heapq

__all__ = ["Deadlines"]

_SLACK = 64


class Deadlines:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._live: dict[str, tuple[float, int, str]] = {}
        """The valid item of the heap for each id."""
        self._counter = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._live

    def set(self, entry_id: str, deadline_s: float) -> None:
        self._counter += 1
        item = self._live[entry_id] = (deadline_s, self._counter, entry_id)
        heapq.heappush(self._heap, item)

    def discard(self, entry_id: str) -> None:
        if self._live.pop(entry_id, None) is not None and len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = list(self._live.values())
            heapq.heapify(self._heap)

    def next_s(self) -> float | None:
        """The earliest deadline of all."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[str]:
        """Takes out every id whose deadline is at or before `now`, the earliest first."""
        due: list[str] = []
        if not self._heap or self._heap[0][0] > now:
            return due
        self._drop_stale()
        while self._heap and self._heap[0][0] <= now:
            entry_id = heapq.heappop(self._heap)[2]
            del self._live[entry_id]
            due.append(entry_id)
            self._drop_stale()
        return due

    def _drop_stale(self) -> None:
        heap, live = self._heap, self._live
        while heap and live.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
