"""Exactly one BOS: templates and tokenisers both like to add it, and a doubled one costs answer quality silently."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["with_one_bos"]


def with_one_bos(ids: Sequence[int], bos_id: int | None) -> tuple[int, ...]:
    """`ids` with one BOS at the start; unchanged for a model without one."""
    if bos_id is None:
        return tuple(ids)
    start = 0
    while start < len(ids) and ids[start] == bos_id:
        start += 1
    return (bos_id, *ids[start:])
