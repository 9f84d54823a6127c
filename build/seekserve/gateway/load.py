"""How busy a backend is, from its own numbers and from what was sent there since they were read. Pure.

The unit is the engine's whole capacity: 1 is as much as it can run at once, or as much urgent work as fits its targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FAMILIES", "PRESSURES", "Load", "read_load"]

_PREFIX = "seekserve_"
# With the names of older servers, which do not end in the unit.
_SLOTS = ("max_running_requests", "max_running")
_PRESSURES = ("pressure_ratio", "pressure")
_REQUESTS = ("queue_requests", "intake_requests", "running_requests")
FAMILIES = tuple(_PREFIX + name for name in (*_REQUESTS, *_SLOTS, *_PRESSURES))
"""All that is read; the rest of a server's metrics is not looked at."""
PRESSURES = tuple(_PREFIX + name for name in _PRESSURES)
"""Of which each instance has its own."""
_SLOTS_WHEN_UNKNOWN = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One model's numbers; None is "does not say"."""

    waiting: float = 0.0
    """Requests being tokenised or queued."""
    running: float = 0.0
    slots: float | None = None
    """Requests that may run at once."""
    pressure: float | None = None
    """Urgent work asked for over what fits the targets."""

    def score(self, unseen: int) -> float:
        """`unseen`: requests sent there since the numbers were read, less those that ended."""
        slots = self.slots or max(_SLOTS_WHEN_UNKNOWN, self.running)
        requests = (self.waiting + self.running + unseen) / slots
        # Waiting requests weigh by themselves: a full engine with an empty queue still starts the next one soon.
        return max(self.pressure or 0.0, 0.0) + requests + self.waiting / slots


def read_load(samples: Mapping[str, float]) -> Load:
    """From one model's samples, name without labels -> sum over them."""

    def of(*names: str) -> float | None:
        found = [samples[_PREFIX + name] for name in names if _PREFIX + name in samples]
        return found[0] if found else None

    return Load(
        waiting=(of("queue_requests") or 0.0) + (of("intake_requests") or 0.0),
        running=of("running_requests") or 0.0,
        slots=of(*_SLOTS),
        pressure=of(*_PRESSURES),
    )
