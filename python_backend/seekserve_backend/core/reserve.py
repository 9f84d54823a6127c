"""What running requests may come to hold at most: batch slots and KV blocks for prompt plus max_tokens of each.

A request that has ended for its client but that the engine still holds (`leaving`) keeps its share until the engine
says so; otherwise a new one could be handed over before slot and blocks are free. The reserve never exceeds the
capacity.
"""

from __future__ import annotations

from .entry import Entry

__all__ = ["Reserve"]


class Reserve:
    def __init__(self, *, slots: int, capacity_blocks: int) -> None:
        self.slots = slots
        self.built_blocks = capacity_blocks
        self.capacity_blocks = capacity_blocks
        self.used_blocks = 0
        self.running: dict[str, Entry] = {}
        self.leaving: dict[str, Entry] = {}

    @property
    def used_slots(self) -> int:
        return len(self.running) + len(self.leaving)

    def limit(self, engine_blocks: int) -> None:
        """The engine's own total counts where it is the smaller one."""
        self.capacity_blocks = min(self.built_blocks, engine_blocks)

    def fits(self, entry: Entry) -> bool:
        return (
            self.used_blocks + entry.need_blocks <= self.capacity_blocks
            and len(self.running) + len(self.leaving) < self.slots
        )

    def take(self, entry: Entry) -> None:
        self.running[entry.id] = entry
        self.used_blocks += entry.need_blocks

    def leave(self, entry: Entry) -> None:
        """No longer running, still held by the engine: `give` must follow."""
        self.leaving[entry.id] = self.running.pop(entry.id)

    def give(self, entry_id: str) -> bool:
        """The engine no longer holds it; False for an id that holds nothing."""
        entry = self.running.pop(entry_id, None) or self.leaving.pop(entry_id, None)
        if entry is None:
            return False
        self.used_blocks -= entry.need_blocks
        return True

    def give_leaving(self) -> None:
        """For an engine that reports itself empty: nothing is leaving any more."""
        for entry_id in list(self.leaving):
            self.give(entry_id)
