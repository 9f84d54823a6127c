"""Routes of a policy: which class a request is of, by where it came in, its headers and its tenant.

The first rule whose every condition holds decides; where none does, the policy's default class. Data alone: the core
chooses (`core/classes.py`).
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .fields import Fields

__all__ = ["CLIENT_CLASS", "ROUTE_HEADERS", "TYPE_HEADER", "Origin", "Route", "read_routes", "read_tenant_classes"]

TYPE_HEADER = "x-request-type"
ROUTE_HEADERS = (TYPE_HEADER, "x-tenant", "x-deadline-ms")
"""Those that the server hands on (`--grpc-header-forward-pattern` of the launch)."""
CLIENT_CLASS = ("wins", "bounded", "ignored")
ANY_TENANT = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a request came from, as far as a route can ask. Header names in lower case."""

    endpoint: str = ""
    """The request parameter `endpoint`, which an HTTP front end sets to the path that was called."""
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Conditions that must all hold; an absent one always does. A text that ends in `*` means: begins with the rest."""

    request_class: str
    endpoint: str | None = None
    tenant: str | None = None
    header: Mapping[str, str] = field(default_factory=dict)
    """Name in lower case -> value; values are compared without regard to case."""

    def matches(self, origin: Origin) -> bool:
        return (
            (self.endpoint is None or _is_like(self.endpoint, origin.endpoint))
            and (self.tenant is None or _is_like(self.tenant, origin.tenant))
            and all(_is_like(value.lower(), origin.headers.get(n, "").lower()) for n, value in self.header.items())
        )

    @property
    def conditions(self) -> tuple[object, ...]:
        return self.endpoint, self.tenant, tuple(sorted(self.header.items()))

    @property
    def text(self) -> str:
        """The conditions, for people."""
        headers = [f"{name}: {value}" for name, value in self.header.items()]
        tenant = [] if self.tenant is None else [f"tenant {self.tenant}"]
        return " and ".join([*headers, *([] if self.endpoint is None else [self.endpoint]), *tenant]) or "everything"

    @property
    def is_for_all(self) -> bool:
        return self.conditions == (None, None, ())

    def to_json(self) -> dict[str, object]:
        data = {"class": self.request_class, "endpoint": self.endpoint, "tenant": self.tenant}
        header = {"header": dict(self.header)} if self.header else {}
        return {**{key: value for key, value in data.items() if value is not None}, **header}


def _is_like(pattern: str, value: str) -> bool:
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


def read_routes(fields: Fields, classes: Collection[str]) -> tuple[Route, ...]:
    value = fields.raw("routes")
    if not isinstance(value, list):
        fields.problem(f"routes: expected a list of rules, got {type(value).__name__}")
        return ()
    routes = tuple(_read_route(fields.nested(f"routes[{n}]", item), classes) for n, item in enumerate(value))
    for (first, a), (second, b) in itertools.combinations(enumerate(routes), 2):
        if a.is_for_all or a.conditions == b.conditions:
            why = "has no condition" if a.is_for_all else "has the same conditions"
            fields.problem(f"routes[{second}]: never reached, routes[{first}] {why}")
            break
    return routes


def _read_route(fields: Fields, classes: Collection[str]) -> Route:
    header = {}
    reader = fields.nested("header", fields.mapping("header", {}))
    for name, value in fields.mapping("header", {}).items():
        low = str(name).lower()
        header[low] = reader.string(name)
        if low not in ROUTE_HEADERS:
            near = difflib.get_close_matches(low, ROUTE_HEADERS, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            reader.problem(f"{name}: not handed on by the server; known are {', '.join(ROUTE_HEADERS)}{hint}")
        elif value == "":
            reader.problem(f"{name}: an empty value matches requests without the header; leave the condition out")
    out = Route(
        request_class=fields.string("class", choices=tuple(classes)),
        endpoint=fields.opt_string("endpoint"),
        tenant=fields.opt_string("tenant"),
        header=header,
    )
    fields.done()
    return out


def read_tenant_classes(fields: Fields, classes: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Tenant, or `*` for all that are not named -> classes it may use, the first for what a route would give it
    otherwise."""
    out: dict[str, tuple[str, ...]] = {}
    for tenant, names in fields.mapping("tenant_classes").items():
        if not isinstance(names, (list, tuple)) or not names or any(not isinstance(name, str) for name in names):
            fields.problem(f"tenant_classes.{tenant}: expected a list of classes, got {names!r}")
            continue
        for name in names:
            if name not in classes:
                near = difflib.get_close_matches(name, classes, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                fields.problem(f"tenant_classes.{tenant}: {name!r} is not one of {', '.join(classes)}{hint}")
        out[str(tenant)] = tuple(names)
    return out
