"""What running requests may come to hold at most: batch slots and KV blocks for prompt plus max_tokens of each.

A request that has ended for its client but that the engine still holds (`leaving`) keeps its share until the engine
says so; otherwise a new one could be handed over before slot and blocks are free. What is given out never exceeds the
capacity. On an engine that may pause requests each is given what it is expected to hold, and what some have outgrown
counts as taken: the engine helps itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..contract.classes import ClassPolicy
from .entry import Entry
from .held import Held
from .shares import Shares

__all__ = ["Reserve"]


class Reserve:
    def __init__(self, *, slots: int, capacity_blocks: int, block_tokens: int = 1, may_pause: bool = False) -> None:
        self.slots = slots
        self.may_pause = may_pause
        self.built_blocks = capacity_blocks
        self.capacity_blocks = capacity_blocks
        self.used_blocks = 0
        self.outgrown_blocks = 0
        """Held by running requests beyond what they were given; as of the last look."""
        self.running: dict[str, Entry] = {}
        self.leaving: dict[str, Entry] = {}
        self.shares = Shares()
        self.block_tokens = block_tokens
        self.held = Held(block_tokens)

    @property
    def used_slots(self) -> int:
        return self.held.count

    def holders(self) -> list[Entry]:
        """Whatever holds a slot."""
        return [*self.running.values(), *self.leaving.values()]

    def limit(self, engine_blocks: int) -> None:
        """The engine's own total counts where it is the smaller one."""
        self.capacity_blocks = min(self.built_blocks, engine_blocks)

    @property
    def left_blocks(self) -> int:
        """Of the capacity, by those that have outgrown what they were given; at least one."""
        return max(self.capacity_blocks - self.outgrown_blocks, 1)

    @property
    def taken_blocks(self) -> int:
        """Given out, or outgrown; the engine has no more than its capacity."""
        return min(self.used_blocks + self.outgrown_blocks, self.capacity_blocks)

    def most_blocks(self, share: float) -> int:
        """That may be given out in all. Where only what is expected is given, the rest is for those that turn out
        longer."""
        return int(share * self.left_blocks) if self.may_pause else self.capacity_blocks

    def note_growth(self) -> None:
        """At every step, where requests may outgrow what they were given: arrivals ask for it, too. Walks what runs."""
        outgrown, running, block_tokens = 0, self.running, self.block_tokens
        for entry_id, tokens in self.held.tokens_by_id().items():
            entry = running.get(entry_id) or self.leaving.get(entry_id)
            if entry is not None:
                outgrown += max(0, -(-int(tokens) // block_tokens) - entry.need_blocks)
        self.outgrown_blocks = outgrown

    def replace_classes(self, classes: Mapping[str, ClassPolicy]) -> None:
        self.shares.replace(classes, self.holders())

    def fits(self, entry: Entry) -> bool:
        left_blocks = self.capacity_blocks - self.outgrown_blocks - self.used_blocks - entry.need_blocks
        if left_blocks < 0 or self.held.count >= self.slots:
            return False
        shares = self.shares
        if shares.is_plain or entry.is_probe:
            return True
        if not shares.has_place(entry.request_class):
            return False
        # One that was accepted under other limits starts when nothing else runs: it must not wait for ever.
        return not self.used_slots or left_blocks >= shares.kept_from(entry.request_class, self.capacity_blocks)

    def fits_own(self, entry: Entry) -> bool:
        """Within what its class has reserved, whoever waits for the rest."""
        return self.shares.fits_own(entry, self.capacity_blocks) and self.fits(entry)

    def has_place(self, entry: Entry) -> bool:
        """Whether its class may run one more, were there room for it."""
        return entry.is_probe or self.shares.has_place(entry.request_class)

    def blocks_for_class(self, name: str) -> int:
        """The most that one request of this class can come to hold."""
        if self.shares.is_plain:
            return self.capacity_blocks
        return self.capacity_blocks - self.shares.reserved_for_others(name, self.capacity_blocks)

    def take(self, entry: Entry) -> None:
        self.running[entry.id] = entry
        self.used_blocks += entry.need_blocks
        if not self.shares.is_plain:
            self.shares.take(entry)
        self.held.start(entry)

    def leave(self, entry: Entry) -> None:
        """No longer running, still held by the engine: `give` must follow."""
        self.leaving[entry.id] = self.running.pop(entry.id)

    def give(self, entry_id: str) -> Entry | None:
        """The engine no longer holds it; None for an id that holds nothing."""
        entry = self.running.pop(entry_id, None) or self.leaving.pop(entry_id, None)
        if entry is None:
            return None
        self.used_blocks -= entry.need_blocks
        if not self.shares.is_plain:
            self.shares.give(entry)
        self.held.end(entry_id)
        return entry
