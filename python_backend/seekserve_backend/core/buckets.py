"""Length buckets: names for ranges of prompt lengths. They key bookkeeping and metrics; they are not batch queues."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["Buckets"]


class Buckets:
    """`edges_tokens` are exclusive upper edges, strictly increasing; the last bucket is open."""

    def __init__(self, edges_tokens: Sequence[int]) -> None:
        self._edges = tuple(edges_tokens)
        lows = (0, *self._edges)
        closed = [f"{_short(low)}-{_short(high)}" for low, high in zip(lows, self._edges, strict=False)]
        self._labels: tuple[str, ...] = (*closed, f"{_short(lows[-1])}+")

        self._counts = dict.fromkeys(self._labels, 0)

    def label(self, tokens: int) -> str:
        return self._labels[bisect_right(self._edges, tokens)]

    def enter(self, label: str) -> None:
        """Counts one more request of this bucket, until it leaves it."""
        self._counts[label] += 1

    def leave(self, label: str) -> None:
        self._counts[label] -= 1

    def counts(self) -> dict[str, int]:
        return dict(self._counts)


def _short(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens and tokens % 1024 == 0 else str(tokens)
