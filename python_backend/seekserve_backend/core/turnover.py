"""What running requests hold and others wait for, batch slots and reserved cache blocks, and how fast it changes hands.

The measure is how many tokens all running requests make for each one that ends, those that still run among them: a mean
of the answers that ended would be far too short as long as the long ones have not.
"""

from __future__ import annotations

from .entry import Entry

__all__ = ["Turnover"]


class Turnover:
    def __init__(self, *, start_tokens: float, gain: float) -> None:
        self.blocks = 0
        """Reserved by requests that have started and not ended."""
        self._gain = gain
        # One imagined end, which soon loses its weight.
        self._ends, self._tokens = 1.0, max(start_tokens, 1.0)

    @property
    def tokens_per_end(self) -> float:
        return self._tokens / self._ends

    def started(self, entry: Entry) -> None:
        self.blocks += entry.need_blocks

    def ended(self, entry: Entry) -> None:
        self.blocks -= entry.need_blocks
        keep = 1.0 - self._gain
        self._ends = self._ends * keep + 1.0
        self._tokens *= keep

    def made(self, tokens: int) -> None:
        self._tokens += tokens
