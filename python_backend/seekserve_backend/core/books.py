"""The books: every live request, and a count of every end. Nothing is opened or closed anywhere else.

Invariant: offered = intake + queued + running + joined + routed + the sum of all terminal kinds.
"""

from __future__ import annotations

from ..contract.refusal import ErrorCode
from .entry import Entry
from .types import Counts, Phase, Terminal

__all__ = ["Books"]


class Books:
    def __init__(self) -> None:
        self.counts = Counts()
        self.refused_by_code: dict[ErrorCode, int] = dict.fromkeys(ErrorCode, 0)
        self.live: dict[str, Entry] = {}
        self.by_phase: dict[Phase, int] = dict.fromkeys(Phase, 0)

    def open(self, entry: Entry) -> None:
        self.counts.offered += 1
        self.live[entry.id] = entry
        self.by_phase[entry.phase] += 1

    def move(self, entry: Entry, phase: Phase) -> None:
        self.by_phase[entry.phase] -= 1
        self.by_phase[phase] += 1
        entry.phase = phase

    def close(self, entry: Entry, terminal: Terminal) -> None:
        del self.live[entry.id]
        self.by_phase[entry.phase] -= 1
        self.counts.terminals[terminal] += 1

    def refuse(self, code: ErrorCode, entry: Entry | None) -> None:
        """`entry`: the request in intake that is refused, or None for one that was never opened."""
        if entry is None:
            self.counts.offered += 1
            self.counts.terminals[Terminal.REFUSED] += 1
        else:
            self.close(entry, Terminal.REFUSED)
        self.refused_by_code[code] += 1

    @property
    def refusals(self) -> int:
        return self.counts.terminals[Terminal.REFUSED]
