"""The mutable record of one live request inside the core. Data only; the scheduler alone changes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .types import Phase

__all__ = ["Entry"]


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """Fields below `is_probe` have a meaning from QUEUED on; those without a default have no value before."""

    id: str
    phase: Phase
    arrival_s: float
    request_class: str
    is_probe: bool
    lane: str = field(init=False)
    """Queue it waits in: its class, or the most urgent class for a probe."""
    prompt_tokens: int = field(init=False)
    max_tokens: int = field(init=False)
    need_blocks: int = field(init=False)
    """KV blocks that prompt plus max_tokens can come to hold; on an engine that may pause, that it is expected to."""
    deadline_ms: int = field(init=False)
    bucket: str = field(init=False)
    tenant: str = field(init=False)
    is_offline: bool = False
    queue_due_s: float = math.inf
    """When its class gives it up unless it has been started, on the caller's clock."""
    sampling: Mapping[str, float] | None = None
    """What its class sets otherwise than the client did; from INTAKE on."""
    ready_s: float = field(init=False)
    """When it was let in, on the caller's clock."""
    deadline_s: float = field(init=False)
    """When its first token is due, on the caller's clock."""
    passed: int = 0
    """Requests that started before it while it was first and waited for room."""
    was_routed: bool = False
    """Handed on to another model, or come back from there: the work it asks for has been noted."""
    order: int = field(init=False)
    """Of acceptance; breaks ties."""
    due_s: float = field(init=False)
    """Its place among urgent ones: the deadline, or the arrival for a probe."""
    cached_tokens: int = 0
    """Leading prompt tokens that need not be read; fewer than the prompt has."""
    price_ms: float = 0.0
    """Engine time of reading its prompt, by the model."""
    read_tokens: int = field(init=False)
    """Of its prompt, by the engine, those that it had cached among them."""
    whole_ms: float = field(init=False)
    """Engine time to its end as estimated on arrival; of offline ones."""
    expected_tokens: float = field(init=False)
    """Of its answer, with a margin."""

    def waited_ms(self, now: float) -> float:
        return max(0.0, (now - self.arrival_s) * 1000.0)
