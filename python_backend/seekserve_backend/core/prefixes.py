"""Which prompt beginnings the engine's cache is likely to hold: block hashes of prompts seen, the latest ones.

An estimate for pricing, not a promise: the engine evicts by its own rules, and what was priced as cached and is not is
corrected by the bias. Each hash covers its block and all before it, so a match is always of a whole beginning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["PrefixIndex", "block_hashes"]

BLOCK_TOKENS = 128
"""Coarse on purpose: shared beginnings that matter are long, and a hash for each 32 tokens would cost four times."""


def block_hashes(prompt_ids: Sequence[int], block_tokens: int = BLOCK_TOKENS) -> tuple[int, ...]:
    """One for each whole block. Hashes of integers are the same in every process."""
    hashes = []
    before = 0
    for start in range(0, len(prompt_ids) - block_tokens + 1, block_tokens):
        before = hash((before, *prompt_ids[start : start + block_tokens]))
        hashes.append(before)
    return tuple(hashes)


class PrefixIndex:
    def __init__(self, capacity_tokens: int, block_tokens: int = BLOCK_TOKENS) -> None:
        self._block_tokens = block_tokens
        self._capacity = max(capacity_tokens // block_tokens, 1)
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match_tokens(self, hashes: Sequence[int]) -> int:
        """Of the longest beginning that was noted and not forgotten since."""
        found = 0
        for each in hashes:
            if each not in self._blocks:
                break
            found += 1
        return found * self._block_tokens

    def note(self, hashes: Sequence[int]) -> None:
        """A prompt that the engine will hold; the block used longest ago is forgotten first."""
        blocks = self._blocks
        for each in reversed(hashes):  # the beginning last: it is what others share, and must outlive its ends
            blocks[each] = None
            blocks.move_to_end(each)
        while len(blocks) > self._capacity:
            blocks.popitem(last=False)
