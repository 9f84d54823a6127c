"""A first-in-first-out queue of entries with removal by id in constant time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from .entry import Entry

__all__ = ["FifoQueue"]


class FifoQueue:
    def __init__(self) -> None:
        # Not a plain dict: finding its first key is linear in the number of keys deleted before it.
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def push(self, entry: Entry) -> None:
        self._entries[entry.id] = entry

    def push_head(self, entry: Entry) -> None:
        self._entries[entry.id] = entry
        self._entries.move_to_end(entry.id, last=False)

    def head(self) -> Entry | None:
        return next(iter(self._entries.values()), None)

    def remove(self, entry_id: str) -> None:
        del self._entries[entry_id]

    def index(self, entry_id: str) -> int:
        """Entries ahead of this one. Walks the queue: for people and tests, not for every step."""
        return next(i for i, key in enumerate(self._entries) if key == entry_id)
