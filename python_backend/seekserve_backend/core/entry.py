"""The mutable record of one live request inside the core. Data only; the scheduler alone changes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .types import Phase

__all__ = ["Entry"]


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """Fields below `is_probe` have a meaning from QUEUED on."""

    id: str
    phase: Phase
    arrival_s: float
    request_class: str
    is_probe: bool
    lane: str = ""
    """Queue it waits in: its class, or the most urgent class for a probe."""
    prompt_tokens: int = 0
    max_tokens: int = 0
    need_blocks: int = 0
    """KV blocks that prompt plus max_tokens can come to hold."""
    deadline_ms: int = 0
    bucket: str = ""
    tenant: str = ""
    is_offline: bool = False
    queue_due_s: float = math.inf
    """When its class gives it up unless it has been started, on the caller's clock."""
    sampling: Mapping[str, float] | None = None
    """What its class sets otherwise than the client did; from INTAKE on."""
    ready_s: float = 0.0
    """When it was let in, on the caller's clock."""
    deadline_s: float = 0.0
    """When its first token is due, on the caller's clock."""
    was_routed: bool = False
    """Handed on to another model, or come back from there: the work it asks for has been noted."""
    order: int = 0
    """Of acceptance; breaks ties."""
    due_s: float = 0.0
    """Its place among urgent ones: the deadline, or the arrival for a probe."""
    cached_tokens: int = 0
    """Leading prompt tokens that need not be read; fewer than the prompt has."""
    price_ms: float = 0.0
    """Engine time of reading its prompt, by the model."""
    read_tokens: int = 0
    """Of its prompt, by the engine, those that it had cached among them."""
    whole_ms: float = 0.0
    """Engine time to its end as estimated on arrival; of offline ones."""
    expected_tokens: float = 0.0
    """Of its answer, with a margin."""

    def waited_ms(self, now: float) -> float:
        return max(0.0, (now - self.arrival_s) * 1000.0)
