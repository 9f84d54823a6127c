"""Rungs of the pressure ladder: at which pressure each is entered, and what it does. Data of a policy.

Pressure 1 means that urgent work asks for all that the engine can give within its targets.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection
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
    """Another model of ours on the same server, to which new requests are handed on while the rung holds."""
    route_classes: tuple[str, ...] = ()
    """Classes that are routed; empty: all."""

    def routes(self, request_class: str) -> bool:
        return self.route_to is not None and (not self.route_classes or request_class in self.route_classes)

    def to_json(self) -> dict[str, object]:
        does = {name: getattr(self, name) for name in self.__slots__ if name != "at"}
        data = {"at": self.at, **{name: value for name, value in does.items() if value not in (None, False, ())}}
        return {**data, "route_classes": list(self.route_classes)} if self.route_classes else data

    @classmethod
    def read(cls, fields: Fields, classes: Collection[str]) -> Rung:
        names = _read_names(fields, classes)
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
            route_classes=names,
        )
        fields.done()
        if out.route_to == "":
            fields.problem("route_to: expected the name of a model, got ''")
        if out.route_classes and out.route_to is None:
            fields.problem("route_classes: says who is routed, and route_to does not say where to")
        return out


NORMAL = Rung(at=0.0)
"""Below the first rung: nothing is done."""

DEFAULT_RUNGS = (
    Rung(at=0.8, stop_offline=True),
    Rung(at=1.0, stop_offline=True, refuse_offline=True),
    Rung(at=1.2, stop_offline=True, refuse_offline=True, shed_by_priority=True),
    Rung(at=3.0, stop_offline=True, refuse_offline=True, critical_only=True),
)


def _read_names(fields: Fields, classes: Collection[str]) -> tuple[str, ...]:
    if not fields.has("route_classes"):
        return ()
    names = fields.raw("route_classes")
    if not isinstance(names, list) or any(not isinstance(name, str) for name in names):
        fields.problem(f"route_classes: expected a list of classes, got {names!r}")
        return ()
    for name in names:
        if name not in classes:
            near = difflib.get_close_matches(name, classes, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            fields.problem(f"route_classes: {name!r} is not one of {', '.join(classes)}{hint}")
    return tuple(names)


def read_rungs(fields: Fields, key: str, classes: Collection[str]) -> tuple[Rung, ...]:
    value = fields.raw(key)
    if not isinstance(value, list):
        fields.problem(f"{key}: expected a list of rungs, got {type(value).__name__}")
        return ()
    rungs = tuple(Rung.read(fields.nested(f"{key}[{n}]", item), classes) for n, item in enumerate(value))
    if any(b.at <= a.at for a, b in itertools.pairwise(rungs)):
        fields.problem(f"{key}: `at` must rise from rung to rung, got {[rung.at for rung in rungs]}")
    return rungs
