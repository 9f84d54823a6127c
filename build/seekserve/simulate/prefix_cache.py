"""Which blocks of prompts an engine still holds: the least recently used go when requests need the room.

A block counts as cached only together with all blocks before it. What running requests hold is not counted here; it
only takes room away.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["PrefixCache"]


class PrefixCache:
    def __init__(self, *, block_tokens: int = 512) -> None:
        self.block_tokens = block_tokens
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match_tokens(self, blocks: Sequence[int]) -> int:
        """Leading tokens held; marks nothing as used."""
        count = next((n for n, block in enumerate(blocks) if block not in self._blocks), len(blocks))
        return count * self.block_tokens

    def use(self, blocks: Sequence[int], *, room_tokens: float) -> None:
        """These are the newest now; the oldest go until all fit into `room_tokens`."""
        held = self._blocks
        for block in reversed(blocks):  # a chain is of use from its start only, so its end should go first
            held[block] = None
            held.move_to_end(block)
        room = int(max(room_tokens, 0.0)) // self.block_tokens
        while len(held) > room:
            held.popitem(last=False)
