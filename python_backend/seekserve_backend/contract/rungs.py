"""Rungs of the pressure ladder: at which pressure each is entered, and what it does. Data of a policy.

Pressure 1 means that urgent work asks for all that the engine can give within its targets.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from .fields import Fields

__all__ = ["DEFAULT_RUNGS", "NORMAL", "Rung", "read_rungs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """Each rung states all that it does; nothing is inherited from the one below."""

    at: float
    stop_offline: bool = False
    """No offline work is started beyond its floor."""
    refuse_offline: bool = False
    """New offline requests are refused with a time to come back."""
    offline_max_tokens: int | None = None
    """Answers of offline requests that start now are cut to this."""
    shed_by_priority: bool = False
    """Of urgent classes below the most important, as large a part is refused as makes the rest fit."""
    critical_only: bool = False
    """Only the most important class is taken."""
    max_beam_width: int | None = None
    """For requests that start now; needs an engine that can change it from request to request."""
    no_speculation: bool = False
    """As above."""
    route_to: str | None = None
    """Name of a loaded variant that takes new work."""

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) not in (None, False)}

    @classmethod
    def read(cls, fields: Fields) -> Rung:
        out = cls(
            at=fields.number("at", low=0.0, high=1000.0),
            stop_offline=fields.boolean("stop_offline", False),
            refuse_offline=fields.boolean("refuse_offline", False),
            offline_max_tokens=fields.opt_integer("offline_max_tokens", low=1),
            shed_by_priority=fields.boolean("shed_by_priority", False),
            critical_only=fields.boolean("critical_only", False),
            max_beam_width=fields.opt_integer("max_beam_width", low=1),
            no_speculation=fields.boolean("no_speculation", False),
            route_to=fields.opt_string("route_to"),
        )
        fields.done()
        return out


NORMAL = Rung(at=0.0)
"""Below the first rung: nothing is done."""

DEFAULT_RUNGS = (
    Rung(at=0.8, stop_offline=True),
    Rung(at=1.0, stop_offline=True, refuse_offline=True),
    Rung(at=1.2, stop_offline=True, refuse_offline=True, shed_by_priority=True),
    Rung(at=3.0, stop_offline=True, refuse_offline=True, critical_only=True),
)


def read_rungs(fields: Fields, key: str) -> tuple[Rung, ...]:
    value = fields.raw(key)
    if not isinstance(value, list):
        fields.problem(f"{key}: expected a list of rungs, got {type(value).__name__}")
        return ()
    rungs = tuple(Rung.read(fields.nested(f"{key}[{n}]", item)) for n, item in enumerate(value))
    if any(b.at <= a.at for a, b in itertools.pairwise(rungs)):
        fields.problem(f"{key}: `at` must rise from rung to rung, got {[rung.at for rung in rungs]}")
    return rungs
