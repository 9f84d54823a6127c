"""What a launch tells the person or program that started it: one event, one line.

Events are for reading along; no decision of the launch depends on who listens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Event", "Say", "silent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`kind` is one of: warning, starting, loading, ready, swapping, swapped, trouble, restarting, stopping, stopped,
    failed."""

    kind: str
    text: str
    data: dict[str, object] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps({"event": self.kind, "text": self.text, **self.data}, sort_keys=True)


Say = Callable[[Event], None]


def silent(_event: Event) -> None:
    """For callers that only want the outcome."""
