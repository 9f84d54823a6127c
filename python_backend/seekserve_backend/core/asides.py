"""Requests without work of their own: they receive the answer of another request, or one that is kept.

They stand in the books like all others (phase JOINED), so that offered = live + ended holds with them; admission, gate
and reserve never see them, because they cost the engine nothing.
"""

from __future__ import annotations

from ..contract.metric_names import UNKNOWN_CLASS
from ..contract.refusal import ErrorCode
from .books import Books
from .entry import Entry
from .refusals import Why
from .types import Phase, Terminal

__all__ = ["Asides"]


class Asides:
    def __init__(self, books: Books) -> None:
        self._books = books

    def join(self, id: str, now: float, *, request_class: str = UNKNOWN_CLASS) -> None:
        """From intake, or straight away: then it counts as offered here. Raises ValueError for one that has work."""
        entry = self._books.live.get(id)
        if entry is None:
            self._books.open(
                Entry(id=id, phase=Phase.JOINED, arrival_s=now, request_class=request_class, is_probe=False)
            )
        elif entry.phase is Phase.INTAKE:
            self._books.move(entry, Phase.JOINED)
        else:
            raise ValueError(f"request {id!r} is {entry.phase.value} and cannot join another")

    def part(self, id: str) -> None:
        """What it joined is gone: back into intake, and `submit` must follow."""
        self._books.move(self._joined(id), Phase.INTAKE)

    def settle(self, id: str, terminal: Terminal) -> None:
        self._books.close(self._joined(id), terminal)

    def refuse(self) -> None:
        """One that never was let in: it came for something that is not there."""
        self._books.refuse(ErrorCode.INVALID, Why.INVALID, None, UNKNOWN_CLASS)

    def is_open(self, id: str) -> bool:
        """False once the core has ended it, though the news may still be on the way."""
        return id in self._books.live

    def _joined(self, id: str) -> Entry:
        entry = self._books.live.get(id)
        if entry is None or entry.phase is not Phase.JOINED:
            raise ValueError(f"request {id!r} has not joined another")
        return entry
