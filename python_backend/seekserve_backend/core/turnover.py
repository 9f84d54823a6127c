"""How fast what running requests hold changes hands: batch slots, and reserved cache.

The measure is how many tokens all running requests make for each one that ends, those that still run among them: a mean
of the answers that ended would be far too short as long as the long ones have not.
"""

from __future__ import annotations

__all__ = ["Turnover"]


class Turnover:
    def __init__(self, *, start_tokens: float, gain: float) -> None:
        self._keep = 1.0 - gain
        # One imagined end, which soon loses its weight.
        self._ends, self._tokens = 1.0, max(start_tokens, 1.0)

    @property
    def tokens_per_end(self) -> float:
        return self._tokens / self._ends

    def ended(self) -> None:
        self._ends = self._ends * self._keep + 1.0
        self._tokens *= self._keep

    def made(self, tokens: int) -> None:
        """Fewer than none: of a probe, taken back, though they have faded since."""
        tokens_in_all = self._tokens + tokens
        self._tokens = tokens_in_all if tokens_in_all > 1.0 else 1.0
