"""How fast the engine ends requests, and what a refused client is told about coming back.

The rate is completions per busy second, decayed with time: idle time says nothing about speed and is left out.
Both the rate and the hint are always finite and positive. No clock, no randomness: jitter comes from a counter.
"""

from __future__ import annotations

import math

__all__ = ["DrainRate", "jitter", "retry_hint_ms", "spread_ms"]

_MEMORY_S = 30.0
_GOLDEN = 0.6180339887498949
_SPREAD = 0.4


class DrainRate:
    """Exponentially weighted completions per second: `resume` when work starts, `observe` after each step."""

    def __init__(self, memory_s: float = _MEMORY_S) -> None:
        self._memory_s = memory_s
        self._ended = 0.0
        self._busy_s = 0.0
        self._since_s: float | None = None

    def resume(self, now: float) -> None:
        if self._since_s is None:
            self._since_s = now

    def observe(self, ended: int, now: float, *, is_busy: bool) -> None:
        """`ended` requests left the engine since the last call; `is_busy`: it still holds some."""
        if self._since_s is not None:
            elapsed_s = max(0.0, now - self._since_s)
            keep = math.exp(-elapsed_s / self._memory_s)
            self._ended *= keep
            self._busy_s = self._busy_s * keep + self._memory_s * (1.0 - keep)
        self._ended += ended
        self._since_s = now if is_busy else None

    @property
    def per_s(self) -> float:
        # One imagined completion in one imagined second: a start before any evidence that soon loses its weight.
        return (self._ended + 1.0) / (self._busy_s + 1.0)


def jitter(count: int) -> float:
    """The `count`-th point of an even spread over [0, 1): clients refused in a row get hints far from each other."""
    return (count * _GOLDEN) % 1.0


def retry_hint_ms(*, ahead: int, per_s: float, low_ms: int, high_ms: int, spread: float) -> int:
    """Time until `ahead` requests and one more have ended, spread by +-20 % and kept inside [low_ms, high_ms].

    The window slides at the bounds instead of being cut, so that clients do not come back in one wave.
    """
    return spread_ms(1000.0 * (ahead + 1) / per_s, low_ms=low_ms, high_ms=high_ms, spread=spread)


def spread_ms(wait_ms: float, *, low_ms: int, high_ms: int, spread: float) -> int:
    wait_ms = min(max(wait_ms, low_ms), high_ms)
    width_ms = min(_SPREAD * wait_ms, high_ms - low_ms)
    start_ms = min(max(wait_ms * (1.0 - _SPREAD / 2), low_ms), high_ms - width_ms)
    return min(int(start_ms + spread * width_ms), high_ms)
