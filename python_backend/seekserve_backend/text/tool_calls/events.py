"""What comes out of a stream that may hold tool calls, and what its two readers have in common."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

__all__ = ["CallArguments", "CallEnd", "CallStart", "Content", "Event", "Outcome", "Reader"]


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    index: int
    """From 0, over the whole output."""
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    index: int
    text: str
    """What was added to the JSON text of the arguments."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    index: int
    is_whole: bool
    """False: cut off or malformed. What was read is in the deltas, the rest of the text in a Content."""


Event = Content | CallStart | CallArguments | CallEnd


class Outcome(enum.Enum):
    MORE = "more"  # more text is needed
    DONE = "done"  # the block has ended
    BROKEN = "broken"  # this is no block after all: what is left is content


class Reader(Protocol):
    """One block of calls. `read` takes what it can from the front of the text and leaves the rest."""

    pending: str
    """Taken from the text, but in no event yet."""
    next_index: int
    is_in_call: bool

    def read(self, text: str, events: list[Event]) -> tuple[str, Outcome]: ...
