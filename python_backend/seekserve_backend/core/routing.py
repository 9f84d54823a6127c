"""The books of requests that another model answers: from the hand-over to their one end, or back into intake.

A routed request holds no queue, slot or block here. Until its first token comes it keeps its deadline, so a model that
says nothing cannot keep it for ever.
"""

from __future__ import annotations

from .books import Books
from .deadlines import Deadlines
from .entry import Entry
from .types import Phase, Terminal

__all__ = ["Routing"]


class Routing:
    def __init__(self, books: Books, deadlines: Deadlines) -> None:
        self._books = books
        self._deadlines = deadlines
        self.started = 0
        self.taken_back = 0

    def start(self, entry: Entry) -> None:
        entry.was_routed = True
        self.started += 1
        self._books.move(entry, Phase.ROUTED)
        self._deadlines.set(entry.id, entry.deadline_s)

    def note_first(self, id: str) -> None:
        """Its first token came."""
        if self._entry(id) is not None:
            self._deadlines.discard(id)

    def take_back(self, id: str) -> bool:
        """Into intake again, to be submitted here; False when it has ended meanwhile."""
        entry = self._entry(id)
        if entry is None:
            return False
        self.taken_back += 1
        self._deadlines.discard(id)
        self._books.move(entry, Phase.INTAKE)
        return True

    def end(self, id: str, terminal: Terminal) -> bool:
        """False when it has ended already: then whoever ended it answers."""
        entry = self._entry(id)
        if entry is None:
            return False
        self._deadlines.discard(id)
        self._books.close(entry, terminal)
        return True

    def _entry(self, id: str) -> Entry | None:
        entry = self._books.live.get(id)
        return entry if entry is not None and entry.phase is Phase.ROUTED else None

    def gauges(self) -> dict[str, float]:
        """Nothing while nothing was ever routed."""
        if not self.started:
            return {}
        return {"routes_started": float(self.started), "routes_taken_back": float(self.taken_back)}
