"""What each class holds in the engine, the cap on it, and the part of the KV cache that is kept for it.

A reservation is a floor, not a ceiling: a class may use more than its own where nobody's reservation is in the way.
Invariant: while anything runs, nothing is started that would leave less free than what other classes have reserved and
not used yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..contract.classes import ClassPolicy
from .entry import Entry

__all__ = ["Shares"]


class Shares:
    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.blocks: dict[str, int] = {}
        self.is_plain = True
        """No class is capped and nothing is reserved; then nothing is counted either."""
        self._caps: dict[str, int] = {}
        self._reserved: dict[str, float] = {}

    def replace(self, classes: Mapping[str, ClassPolicy], holders: Iterable[Entry]) -> None:
        """`holders`: what the engine holds now."""
        self._caps = {name: rules.max_running for name, rules in classes.items() if rules.max_running is not None}
        self._reserved = {name: rules.kv_reserved_share for name, rules in classes.items() if rules.kv_reserved_share}
        self.is_plain = not (self._caps or self._reserved)
        self.running, self.blocks = {}, {}
        for entry in () if self.is_plain else holders:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        name = entry.request_class
        self.running[name] = self.running.get(name, 0) + 1
        self.blocks[name] = self.blocks.get(name, 0) + entry.need_blocks

    def give(self, entry: Entry) -> None:
        name = entry.request_class
        self.running[name] -= 1
        self.blocks[name] -= entry.need_blocks

    def cap(self, name: str) -> int | None:
        return self._caps.get(name)

    def has_place(self, name: str) -> bool:
        cap = self._caps.get(name)
        return cap is None or self.running.get(name, 0) < cap

    def kept_from(self, name: str, capacity_blocks: int) -> int:
        """Blocks that other classes have reserved and do not use yet."""
        return sum(
            max(0, int(share * capacity_blocks) - self.blocks.get(other, 0))
            for other, share in self._reserved.items()
            if other != name
        )

    def reserved_for_others(self, name: str, capacity_blocks: int) -> int:
        """Blocks that a request of this class can never have beside others."""
        return sum(int(share * capacity_blocks) for other, share in self._reserved.items() if other != name)

    def fits_own(self, entry: Entry, capacity_blocks: int) -> bool:
        """Within what its class has reserved."""
        share = self._reserved.get(entry.request_class, 0.0)
        return self.blocks.get(entry.request_class, 0) + entry.need_blocks <= int(share * capacity_blocks)

    def full(self) -> frozenset[str]:
        """Classes at their cap."""
        return frozenset(name for name in self._caps if not self.has_place(name))

    def reserving(self) -> frozenset[str]:
        return frozenset(self._reserved)
