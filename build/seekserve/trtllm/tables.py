"""Flat tables of facts: the flags of a command line, the parameters of a Triton model; names, types, bounds, words."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .data import facts
from .finding import ArgFinding, error, warning
from .schema import ORDER, Field, field_from, snapshot
from .values import check_value, nearest

__all__ = ["Entry", "check_entry", "table", "table_names", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    field: Field
    is_required: bool
    is_unused: bool
    """Parsed and never read."""
    is_alias: bool
    """Another spelling of `field.renamed_to`."""
    is_power_of_two: bool
    needs_env: str
    removed: str
    """Since when it is gone."""
    belongs: str
    """Where such a setting is made instead."""
    placeholder: str
    """What the shipped template calls a parameter of another name."""


def table_names(document: str) -> tuple[str, ...]:
    return tuple(facts(document)["tables"])


@functools.cache
def table(document: str, name: str) -> Mapping[str, Entry]:
    return {
        key: Entry(
            field=field_from(key, raw, ORDER),
            is_required=raw.get("required", False),
            is_unused=raw.get("unused", False),
            is_alias=raw.get("alias", False),
            is_power_of_two=raw.get("power_of_two", False),
            needs_env=raw.get("needs_env", ""),
            removed=str(raw.get("removed", "")),
            belongs=raw.get("belongs", ""),
            placeholder=raw.get("placeholder", ""),
        )
        for key, raw in facts(document)["tables"][name].items()
    }


def check_entry(entry: Entry, value: object, path: str) -> Iterator[ArgFinding]:
    field = entry.field
    if entry.removed:
        since = entry.removed if entry.removed.startswith("before") else f"since {entry.removed}"
        yield error("argument-removed", path, f"is removed {since}", field.note or "leave it out")
        return
    if entry.belongs:
        yield error("argument-unknown", path, "cannot be set here", f"it belongs to {entry.belongs}")
        return
    problems = list(check_value(field, value, path, snapshot("A")))
    yield from problems
    if entry.is_power_of_two and type(value) is int and value > 0 and value & (value - 1):
        yield error("argument-range", path, f"is {value}, no power of two", f"such as {1 << (value.bit_length() - 1)}")
    if entry.is_unused:
        yield warning("argument-unused", path, "is parsed and never read: it has no effect", "leave it out")
    if field.confidence == "unverified":
        yield warning("argument-unverified", path, "unverified: nobody has seen it work", field.note)


def unknown(name: str, path: str, entries: Mapping[str, Entry], what: str) -> ArgFinding:
    """`what`: of what it is no part, e.g. `trtllm-build`."""
    for key, entry in entries.items():
        if entry.placeholder == name:
            return error("argument-renamed", path, "is the template's placeholder", f"the parameter is {key}")
    near = nearest(name, [key for key, entry in entries.items() if not entry.removed])
    hint = f"did you mean {path.removesuffix(name)}{near}?" if near else ""
    return error("argument-unknown", path, f"is unknown to {what}", hint)
