"""What goes into a run and what comes out: arrivals, outcomes, samples over time. Data only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["Arrival", "Clients", "Outcome", "Run", "Sample"]


@dataclass(frozen=True, slots=True)
class Arrival:
    time_s: float
    prompt_tokens: int
    output_tokens: int
    """What it will produce if nobody stops it: known to the plant, never to the scheduler."""
    request_class: str
    max_tokens: int
    tenant: str = ""
    cached_tokens: int = 0
    """Leading prompt tokens that the engine holds already."""
    blocks: tuple[int, ...] = ()
    """Hashes of its prompt's leading blocks, where the trace has them: then a cache is simulated instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What clients do when they are refused, expire or wait too long."""

    retries: int = 0
    honours_hint: bool = True
    """False: they come back after `backoff_s`, whatever they were told, even when told never."""
    backoff_s: float = 1.0
    patience_s: float | None = None
    """Without a first token for this long they hang up and try again; None: they wait for ever."""


@dataclass(slots=True)
class Outcome:
    """What became of one arrival, over all of its tries; times in seconds of the simulation."""

    arrival: Arrival
    asked_s: float = 0.0
    """Of the last try: its targets count from here."""
    released_s: float | None = None
    first_s: float | None = None
    end_s: float | None = None
    tokens: int = 0
    """Of the last try."""
    wasted_tokens: int = 0
    """Of tries that were given up."""
    state: str = "open"
    """open, finished, refused, expired, left (by its client) or failed (by the engine)."""
    tries: int = 1
    hint_ms: int | None = None
    """When to come back, as last told."""
    replica: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of all replicas together at one moment."""

    time_s: float
    queued: int
    running: int
    kv_share: float
    pressure: float
    rung: float
    """The highest of all replicas."""
    bias: float
    """Mean over replicas."""
    is_broken: bool
    memory_pressure: float = math.nan
    """As operators' guides reckon it; the highest of all replicas."""
    batch_efficiency: float = math.nan
    """Mean over replicas."""


@dataclass(slots=True)
class Run:
    outcomes: list[Outcome]
    steps: int
    busy_s: float
    """Engine time spent in steps, over all replicas."""
    end_s: float
    samples: list[Sample] = field(default_factory=list)
    gaps_ms: dict[int, int] = field(default_factory=dict)
    """Gaps between two tokens, rounded up to whole milliseconds -> how many tokens waited so long."""
    breaker_openings: int = 0
    batch_formation_ms: float = math.nan
    """Mean time from being let in to the first engine step."""
    hit_tokens: int = 0
    """Prompt tokens that did not have to be read."""
    pauses: int = 0
    """Requests that engines stopped because their cache was full."""
    reread_tokens: int = 0
    """Of these requests, read a second time."""
