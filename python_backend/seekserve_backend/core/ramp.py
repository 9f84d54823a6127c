"""How many requests may run while the engine is new: doubling in steps of time, held back while steps are too slow.

After a start, a reload or an opened breaker the caches are cold and the step times unproven; a full batch at once would
be judged by its worst minute.
"""

from __future__ import annotations

import math

__all__ = ["Ramp"]


class Ramp:
    def __init__(self, *, start_requests: int, doubling_s: float, most_requests: int) -> None:
        self._start = start_requests
        self._doubling_s = doubling_s
        self._most = most_requests
        self._since_s: float | None = None
        self._warm_s = 0.0
        self._limit = math.inf
        self.is_rising = False
        """As of the last look at the limit."""

    def restart(self) -> None:
        self._since_s = None
        self._warm_s = 0.0

    def limit(self, now: float, *, is_slow: bool) -> int:
        """Requests that may run. Time while steps miss their target does not count."""
        self.is_rising = False
        if self._warm_s == math.inf or self._doubling_s <= 0.0:
            return self._most
        if self._since_s is not None and not is_slow:
            self._warm_s += max(0.0, now - self._since_s)
        self._since_s = now
        doublings = self._warm_s / self._doubling_s
        limit = self._start * 2.0 ** min(doublings, 40.0)
        if limit >= self._most:
            self._warm_s = math.inf
            return self._most
        self._limit, self.is_rising = limit, not is_slow
        return int(limit)

    def growth_per_ms(self, requests: int) -> float:
        """How fast the limit rises until so many more requests may run; it must be rising."""
        return requests / (1000.0 * self._doubling_s * math.log2(1.0 + requests / self._limit))
