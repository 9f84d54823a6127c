"""An opening of the breaker as it is told to people: what the core knows, and how far each answer had come."""

from __future__ import annotations

from collections.abc import Mapping

from .core.openings import Opening
from .work import Work

__all__ = ["told"]


def told(opening: Opening, works: Mapping[str, Work]) -> dict[str, object]:
    """As JSON. `works`: of the requests in the engine, by id; who is not among them is told without clients."""
    return {
        "opening": opening.number,
        "requests": [
            {**each._asdict(), **_progress(works.get(each.id)), "has_failed": each.id in opening.failed_ids}
            for each in opening.running
        ],
    }


def _progress(work: Work | None) -> dict[str, object]:
    if work is None:
        return {}
    return {
        "client_ids": [live.public_id for live in work.lives],
        "produced_tokens": work.completion_tokens,
    }
