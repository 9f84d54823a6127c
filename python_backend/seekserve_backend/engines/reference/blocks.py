"""Which KV block belongs to whom: a fixed pool, taken whole and given back whole.

Knows numbers only, no tensors and no requests. Invariant: every block is either free or taken, never both, never lost;
blocks leave in a fixed order, so that the same calls give the same block tables.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["BlockPool"]


class BlockPool:
    """Last given back, first taken: the block most likely still in the CPU's cache."""

    def __init__(self, total_blocks: int) -> None:
        if total_blocks < 1:
            raise ValueError(f"a pool needs at least 1 block, got {total_blocks}")
        self.total_blocks = total_blocks
        self._free = list(range(total_blocks - 1, -1, -1))
        self._taken = bytearray(total_blocks)

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    def can_take(self, blocks: int) -> bool:
        return 0 <= blocks <= len(self._free)

    def take(self, blocks: int) -> tuple[int, ...]:
        """Raises ValueError when fewer are free; ask `can_take` first."""
        if not self.can_take(blocks):
            raise ValueError(f"{blocks} KV blocks asked for, {len(self._free)} of {self.total_blocks} are free")
        out = tuple(self._free.pop() for _ in range(blocks))
        for block in out:
            self._taken[block] = 1
        return out

    def give_back(self, blocks: Iterable[int]) -> None:
        """Raises ValueError for a block that is not out; none is given back then."""
        returned = tuple(blocks)
        wrong = [b for b in returned if not 0 <= b < self.total_blocks or not self._taken[b]]
        if wrong or len(dict.fromkeys(returned)) != len(returned):
            raise ValueError(f"KV blocks {wrong or list(returned)} given back, but not taken that often")
        for block in returned:
            self._taken[block] = 0
        self._free.extend(reversed(returned))

    def check_integrity(self) -> None:
        """Raises AssertionError when a block is lost or held twice."""
        taken = sum(self._taken)
        assert taken + len(self._free) == self.total_blocks, (taken, len(self._free), self.total_blocks)
        assert len(dict.fromkeys(self._free)) == len(self._free), "a block is free twice"
        assert not any(self._taken[block] for block in self._free), "a block is both free and taken"
