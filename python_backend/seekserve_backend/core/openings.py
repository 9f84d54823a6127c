"""What the engine was working on when the breaker opened: facts for whoever looks for the cause, no prompts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from .entry import Entry
from .held import Held

__all__ = ["AtWork", "Opening", "at_work"]


class AtWork(NamedTuple):
    """One request in the engine."""

    id: str
    request_class: str
    prompt_tokens: int
    cached_tokens: int
    """Of the prompt, believed to be in the engine's cache."""
    max_tokens: int
    held_tokens: int
    """Of prompt and answer in the engine's cache, as the core reckons."""
    age_ms: float
    """Since its bytes arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    number: int
    """Openings so far, this one among them."""
    at_s: float
    """On the caller's clock."""
    running: tuple[AtWork, ...]
    """Before the fault took any of them."""
    failed_ids: Collection[str]
    """Whose failure opened it."""


def at_work(entries: Iterable[Entry], held: Held, now: float) -> tuple[AtWork, ...]:
    tokens = held.tokens_by_id()
    return tuple(
        AtWork(
            id=entry.id,
            request_class=entry.request_class,
            prompt_tokens=entry.prompt_tokens,
            cached_tokens=entry.cached_tokens,
            max_tokens=entry.max_tokens,
            held_tokens=int(tokens.get(entry.id, 0.0)),
            age_ms=entry.waited_ms(now),
        )
        for entry in entries
    )
