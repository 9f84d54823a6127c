"""Stop strings in a stream: what may be shown now, and whether the text has ended.

The stop that begins first wins, of those beginning together the longest. Text that could still turn into a stop is held
back, and so is a found stop while an earlier or longer one is still possible; `flush` settles it.
Invariant: the result does not depend on how the text was cut.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopMatcher"]


class StopMatcher:
    """Empty stops are left out: clients pad with them."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(dict.fromkeys(s for s in stops if s))
        self._held = ""
        self._is_done = False

    def feed(self, text: str) -> tuple[str, str | None]:
        """Text that is safe to show, and the stop that ended it; after that, nothing more comes."""
        if self._is_done:
            return "", None
        if not self._stops:
            return text, None
        buffer = self._held + text
        found = self._first(buffer)
        hold = self._hold_from(buffer)
        if found is not None and found[0] < hold:
            return self._end(buffer, found)
        self._held = buffer[hold:]
        return buffer[:hold], None

    def flush(self) -> tuple[str, str | None]:
        """The end of the text: what was held back, up to a stop that was waiting for a better one."""
        buffer = "" if self._is_done else self._held
        found = self._first(buffer)
        if found is not None:
            return self._end(buffer, found)
        self._is_done, self._held = True, ""
        return buffer, None

    def _end(self, buffer: str, found: tuple[int, str]) -> tuple[str, str]:
        self._is_done, self._held = True, ""
        return buffer[: found[0]], found[1]

    def _first(self, buffer: str) -> tuple[int, str] | None:
        hits = [(at, stop) for stop in self._stops if (at := buffer.find(stop)) >= 0]
        return min(hits, key=lambda hit: (hit[0], -len(hit[1])), default=None)

    def _hold_from(self, buffer: str) -> int:
        """Where the longest suffix begins that is the beginning of a stop, and not the whole of it."""
        hold = len(buffer)
        for stop in self._stops:
            at = max(0, len(buffer) - len(stop) + 1)
            while (at := buffer.find(stop[0], at, hold)) >= 0:
                if stop.startswith(buffer[at:]):
                    hold = at
                    break
                at += 1
        return hold
