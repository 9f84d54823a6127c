"""What running requests hold and others wait for, and how fast they give it back: batch slots and reserved cache blocks.

The measure is how many tokens all running requests make for each one that ends, those that still run among them: a mean
of the answers that ended would be far too short as long as the long ones have not.
Invariant: the sums are those of the requests that have started and not ended.
"""

from __future__ import annotations

from .entry import Entry

__all__ = ["Turnover"]


class Turnover:
    def __init__(self, *, start_tokens: float, gain: float) -> None:
        self.slots = 0
        self.blocks = 0
        self._gain = gain
        # One imagined end, which soon loses its weight.
        self._ends, self._tokens = 1.0, max(start_tokens, 1.0)

    @property
    def tokens_per_end(self) -> float:
        return self._tokens / self._ends

    def started(self, entry: Entry) -> None:
        self.slots += 1
        self.blocks += entry.need_blocks

    def ended(self, entry: Entry) -> None:
        self.slots -= 1
        self.blocks -= entry.need_blocks
        keep = 1.0 - self._gain
        self._ends = self._ends * keep + 1.0
        self._tokens *= keep

    def made(self, tokens: int) -> None:
        self._tokens += tokens

    def slots_ms(self, missing: int, token_ms: float, *, growth_per_ms: float = 0.0) -> float:
        """Until so many more slots are free; `token_ms`: in which each running request makes one token;
        `growth_per_ms`: slots that are added meanwhile."""
        return missing / max(self.slots / (self.tokens_per_end * token_ms) + growth_per_ms, 1e-9)

    def blocks_ms(self, missing: float, token_ms: float) -> float:
        return missing / max(self.blocks / (self.tokens_per_end * token_ms), 1e-9)
