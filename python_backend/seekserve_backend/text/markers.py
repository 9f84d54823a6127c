"""Markers in a stream that may be cut anywhere: where the text ends that certainly begins none of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["first_marker", "unfinished_from"]


def unfinished_from(text: str, markers: Iterable[str]) -> int:
    """Where the longest suffix begins that is the beginning, but not the whole, of a marker; `len(text)` if none is."""
    hold = len(text)
    for marker in markers:
        at = max(0, len(text) - len(marker) + 1)
        while (at := text.find(marker[0], at, hold)) >= 0:
            if marker.startswith(text[at:]):
                hold = at
                break
            at += 1
    return hold


def first_marker(text: str, markers: Sequence[str]) -> tuple[int, str] | None:
    """The marker that begins first, and where; of those that begin together the longest."""
    hits = [(at, marker) for marker in markers if (at := text.find(marker)) >= 0]
    return min(hits, key=lambda hit: (hit[0], -len(hit[1])), default=None)
