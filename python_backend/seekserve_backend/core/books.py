"""The books: every live request, and a count of every end. Nothing is opened or closed anywhere else.

Invariant: offered = intake + queued + running + joined + routed + the sum of all terminal kinds.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..contract.refusal import ErrorCode
from .entry import Entry
from .refusals import CODES, Why
from .types import Counts, Phase, Terminal

__all__ = ["Books"]

_QUEUED = Phase.QUEUED


class Books:
    def __init__(self) -> None:
        self.counts = Counts()
        self.refused_by_code: dict[ErrorCode, int] = dict.fromkeys(ErrorCode, 0)
        self._refused: dict[tuple[str, Why], int] = {}
        """By class and reason."""
        self._ended: dict[tuple[str, Terminal], int] = {}
        """By class and terminal kind; the sum of `counts.terminals`."""
        self.admitted: dict[str, int] = {}
        """Let into the queue, by class."""
        self.live: dict[str, Entry] = {}
        self.by_phase: dict[Phase, int] = dict.fromkeys(Phase, 0)

    def open(self, entry: Entry) -> None:
        self.counts.offered += 1
        self.live[entry.id] = entry
        self.by_phase[entry.phase] += 1

    def admit(self, entry: Entry) -> None:
        by_phase, admitted, name = self.by_phase, self.admitted, entry.request_class
        by_phase[entry.phase] -= 1
        by_phase[_QUEUED] += 1
        entry.phase = _QUEUED
        admitted[name] = admitted.get(name, 0) + 1

    def move(self, entry: Entry, phase: Phase) -> None:
        by_phase = self.by_phase
        by_phase[entry.phase] -= 1
        by_phase[phase] += 1
        entry.phase = phase

    def close(self, entry: Entry, terminal: Terminal) -> None:
        del self.live[entry.id]
        self.by_phase[entry.phase] -= 1
        self._count_end(entry.request_class, terminal)

    def refuse(self, code: ErrorCode, why: Why, entry: Entry | None, request_class: str) -> None:
        """`entry`: the request in intake that is refused, or None for one that was never opened.

        `request_class`: under which it is counted; a name out of a bounded set, whatever the client sent.
        """
        if entry is None:
            self.counts.offered += 1
            self._count_end(request_class, Terminal.REFUSED)
        else:
            entry.request_class = request_class
            self.close(entry, Terminal.REFUSED)
        self.refused_by_code[code] += 1
        self._refused[request_class, why] = self._refused.get((request_class, why), 0) + 1

    def _count_end(self, request_class: str, terminal: Terminal) -> None:
        key = request_class, terminal
        self.counts.terminals[terminal] += 1
        self._ended[key] = self._ended.get(key, 0) + 1

    def ended_by_class(self, classes: Iterable[str]) -> dict[tuple[str, str], int]:
        """(class, terminal kind) -> requests, with a zero for what did not happen in the classes that there are: a rate
        needs something to rise from."""
        counts = {(name, kind): 0 for name in classes for kind in Terminal} | self._ended
        return {(name, kind.value): n for (name, kind), n in counts.items()}

    def refused_by_reason(self, classes: Iterable[str]) -> dict[tuple[str, str, str], int]:
        """(class, code, reason) -> requests, with zeros in the same way."""
        counts = {(name, why): 0 for name in classes for why in CODES} | self._refused
        return {(name, CODES[why].value, why.value): n for (name, why), n in counts.items()}

    @property
    def refusals(self) -> int:
        return self.counts.terminals[Terminal.REFUSED]
