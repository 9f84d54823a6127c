"""One number for how hard pressed the service is, and the ladder of rungs that it moves up and down.

Up after a short time at or above a rung, down only after a long one below the rung before: each rung changes what
clients see, and flapping costs more than waiting. What a rung does is data of the policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..contract.rungs import NORMAL, Rung

__all__ = ["Ladder"]


class Ladder:
    def __init__(self, rungs: Sequence[Rung], *, up_s: float, down_s: float) -> None:
        self.pressure = 0.0
        self.level = 0
        self._above_since_s: float | None = None
        self._below_since_s: float | None = None
        self.replace(rungs, up_s=up_s, down_s=down_s)

    def replace(self, rungs: Sequence[Rung], *, up_s: float, down_s: float) -> None:
        self._rungs = (NORMAL, *rungs)
        self._up_s, self._down_s = up_s, down_s
        self.level = min(self.level, len(rungs))
        self.rung: Rung = self._rungs[self.level]

    def update(self, pressure: float, now: float) -> bool:
        """True when the rung changed; at most one step each time."""
        self.pressure = pressure
        can_rise = self.level + 1 < len(self._rungs) and pressure >= self._rungs[self.level + 1].at
        can_fall = self.level > 0 and pressure < self._rungs[self.level].at
        self._above_since_s = (self._above_since_s if self._above_since_s is not None else now) if can_rise else None
        self._below_since_s = (self._below_since_s if self._below_since_s is not None else now) if can_fall else None
        if self._above_since_s is not None and now - self._above_since_s >= self._up_s:
            return self._move(1)
        if self._below_since_s is not None and now - self._below_since_s >= self._down_s:
            return self._move(-1)
        return False

    def _move(self, by: int) -> bool:
        self.level += by
        self.rung = self._rungs[self.level]
        self._above_since_s = self._below_since_s = None
        return True
