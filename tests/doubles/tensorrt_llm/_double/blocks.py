"""KV blocks: who uses them, which finished ones can be found again, and the counters of the statistics.

Free blocks include those that still hold a reusable part of an old request. Reuse is by whole blocks, along the chain
of token ids from the start of the prompt; eviction takes the lowest priority first, then the longest unused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

__all__ = ["DEFAULT_PRIORITY", "BlockPool", "Holding", "Priority"]

DEFAULT_PRIORITY = 35
Priority = tuple[int, float | None]
"""0 to 100, and how many seconds it lasts."""


@dataclass(slots=True, kw_only=True)
class _Block:
    key: Hashable | None = None
    users: int = 0
    priority: int = DEFAULT_PRIORITY
    priority_until: float | None = None
    used_at: int = 0


@dataclass(slots=True, kw_only=True)
class Holding:
    """The blocks of one request."""

    blocks: list[_Block] = field(default_factory=list)
    reused: int = 0
    missed: int = 0
    allocated: int = 0


class BlockPool:
    def __init__(self, total_blocks: int, tokens_per_block: int, reuses: bool, now: Callable[[], float]) -> None:
        self.total_blocks = total_blocks
        self.tokens_per_block = tokens_per_block
        self.reused = self.missed = self.allocated = 0
        self.events: list[dict[str, object]] = []
        self._reuses = reuses
        self._now = now
        self._by_key: dict[Hashable, _Block] = {}
        self._used = 0
        self._tick = itertools.count()

    @property
    def used_blocks(self) -> int:
        return self._used

    @property
    def free_blocks(self) -> int:
        return self.total_blocks - self._used

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.tokens_per_block)

    def start(self, prompt_ids: Sequence[int], salt: Hashable, priority: Callable[[int], Priority]) -> Holding | None:
        """Blocks for the prompt, or None when they are not free."""
        keys = self._keys(prompt_ids, salt)[: (len(prompt_ids) - 1) // self.tokens_per_block]
        found = self._found(keys)
        needed = self.blocks_for(len(prompt_ids))
        idle = sum(block.users == 0 for block in found)
        if needed - len(found) + idle > self.free_blocks:
            return None
        holding = Holding(reused=len(found), missed=len(keys) - len(found))
        for place, block in enumerate(found):
            self._take(holding, block, priority(place * self.tokens_per_block))
        for place in range(len(found), needed):
            self._take(holding, self._fresh(holding), priority(place * self.tokens_per_block))
        self.reused += holding.reused
        self.missed += holding.missed
        return holding

    def grow(self, holding: Holding, tokens: int, priority: Priority) -> bool:
        while len(holding.blocks) < self.blocks_for(tokens):
            if self.free_blocks < 1:
                return False
            self._take(holding, self._fresh(holding), priority)
        return True

    def finish(self, holding: Holding, token_ids: Sequence[int], salt: Hashable) -> None:
        """Gives the blocks back; whole ones can be found again under their tokens."""
        keys = self._keys(token_ids, salt) if self._reuses else []
        for place, block in enumerate(holding.blocks):
            block.users -= 1
            self._used -= block.users == 0
            if place < len(keys) and block.key is None and keys[place] not in self._by_key:
                block.key = keys[place]
                self._by_key[block.key] = block
                self.events.append({"type": "stored", "blocks": [hash(block.key)]})
        holding.blocks.clear()

    def _keys(self, token_ids: Sequence[int], salt: Hashable) -> list[Hashable]:
        whole = len(token_ids) // self.tokens_per_block
        return [(salt, tuple(token_ids[: (place + 1) * self.tokens_per_block])) for place in range(whole)]

    def _found(self, keys: Sequence[Hashable]) -> list[_Block]:
        if not self._reuses:
            return []
        return [self._by_key[key] for key in itertools.takewhile(self._by_key.__contains__, keys)]

    def _take(self, holding: Holding, block: _Block, priority: Priority) -> None:
        level, lasts_s = priority
        self._used += block.users == 0
        block.users += 1
        block.used_at = next(self._tick)
        block.priority = level
        block.priority_until = None if lasts_s is None else self._now() + lasts_s
        holding.blocks.append(block)

    def _fresh(self, holding: Holding) -> _Block:
        holding.allocated += 1
        self.allocated += 1
        idle = [block for block in self._by_key.values() if block.users == 0]
        if self._used + len(idle) >= self.total_blocks:
            victim = min(idle, key=lambda block: (self._level(block), block.used_at))
            del self._by_key[victim.key]
            self.events.append({"type": "removed", "block_hashes": [hash(victim.key)]})
        return _Block()

    def _level(self, block: _Block) -> int:
        is_over = block.priority_until is not None and self._now() >= block.priority_until
        return DEFAULT_PRIORITY if is_over else block.priority
