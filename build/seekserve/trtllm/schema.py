"""Facts files as objects: fields with their type, bounds and words, and the snapshots of the source that have them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .data import facts
from .kinds import Kind, kind_of

__all__ = ["ROOT", "Field", "Member", "Schema", "Snapshot", "Union", "field_from", "llm_schema", "snapshot"]

ROOT: Final = "LlmArgs"
ORDER: Final = "ONABD"
"""Snapshots, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    letter: str
    label: str
    """The release that it stands for."""
    text: str
    letters: str
    """Its own and those it extends."""

    def has(self, present: str) -> bool:
        return any(letter in present for letter in self.letters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    kind: Kind
    kinds: Mapping[str, Kind]
    """By snapshot, where it differs from `kind`."""
    default: object
    defaults: Mapping[str, object]
    """By snapshot, where it differs from `default`."""
    choices: Mapping[object, str]
    """Word -> snapshots that have it; empty: any."""
    open_in: str
    folds_case: bool
    bounds: Mapping[str, float]
    bounds_by: Mapping[str, Mapping[str, float]]
    """By snapshot, beside `bounds`."""
    required_in: str
    only: Mapping[str, str]
    """Snapshot, or `*` -> `torch` or `trt`."""
    renamed_to: str
    deprecated_in: str
    ignored: Mapping[str, tuple[object, ...]]
    note: str
    present: str
    confidence: str

    def kind_in(self, snapshot: Snapshot) -> Kind:
        return next((self.kinds[letter] for letter in snapshot.letters if letter in self.kinds), self.kind)

    def default_in(self, snapshot: Snapshot) -> object:
        return next((self.defaults[letter] for letter in snapshot.letters if letter in self.defaults), self.default)

    def words_in(self, snapshot: Snapshot) -> tuple[object, ...]:
        return tuple(word for word, present in self.choices.items() if snapshot.has(present))

    def bounds_in(self, snapshot: Snapshot) -> Mapping[str, float]:
        own = [self.bounds_by[letter] for letter in snapshot.letters if letter in self.bounds_by]
        return {**self.bounds, **own[0]} if own else self.bounds

    def owner_in(self, snapshot: Snapshot) -> str | None:
        return next((self.only[letter] for letter in (*snapshot.letters, "*") if letter in self.only), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of the alternatives of a union."""

    config: str
    is_open: bool
    """Its members are not modelled."""
    only: str | None
    renamed_to: str
    present: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    key: str
    base: str
    members: Mapping[str, Member]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    configs: Mapping[str, Mapping[str, Field]]
    unions: Mapping[str, Union]
    mistaken: Mapping[str, str]
    """A name that people bring along -> what it is called here."""

    def union_fields(self, union: Union, member: str | None) -> dict[str, Field]:
        """Fields of one member; of all when it is not known yet, each as the member that has it longest."""
        members = union.members.values() if member is None else [union.members[member]]
        out = dict(self.configs[union.base])
        for each in members:
            for key, field in self.configs[each.config].items():
                if member is not None or key not in out or len(field.present) > len(out[key].present):
                    out[key] = field
        return out


@functools.cache
def snapshot(letter: str) -> Snapshot:
    entry = facts("versions")["snapshots"][letter]
    return Snapshot(
        letter=letter, label=entry["label"], text=entry["text"], letters=letter + str(entry.get("extends", ""))
    )


@functools.cache
def llm_schema() -> Schema:
    top, nested, unions = facts("llm_args"), facts("llm_args_nested"), facts("llm_args_unions")
    configs = {**top["configs"], **nested["configs"], **unions["configs"]}
    return Schema(
        configs={
            name: {key: field_from(key, raw) for key, raw in entries.items()} for name, entries in configs.items()
        },
        unions={name: _union(raw) for name, raw in unions["unions"].items()},
        mistaken={name: raw["use"] for name, raw in top["mistaken"].items()},
    )


def field_from(name: str, raw: Mapping[str, Any], present: str | None = None) -> Field:
    """`present` replaces the snapshots of `source` where the table has none."""
    source = raw["source"] if present is None else present
    choices = raw.get("choices", {})
    only = raw.get("only", {})
    return Field(
        name=name,
        kind=kind_of(raw["type"]),
        kinds={letter: kind_of(text) for letter, text in raw.get("types", {}).items()},
        default=raw.get("default"),
        defaults=raw.get("defaults", {}),
        choices=choices if isinstance(choices, dict) else dict.fromkeys(choices, ORDER),
        open_in=_letters(raw.get("open", "")),
        folds_case=raw.get("fold", False),
        bounds={key: raw[key] for key in ("min", "max", "above", "below", "length") if key in raw},
        bounds_by=raw.get("bounds", {}),
        required_in=_letters(raw.get("required", "")),
        only=only if isinstance(only, dict) else {"*": only},
        renamed_to=raw.get("renamed_to", ""),
        deprecated_in=raw.get("deprecated", ""),
        ignored={letter: tuple(values) for letter, values in raw.get("ignored", {}).items()},
        note=raw.get("note", ""),
        present="" if source == "none" else source,
        confidence=raw["confidence"],
    )


def _letters(value: object) -> str:
    return ORDER if value is True else str(value)


def _union(raw: Mapping[str, Any]) -> Union:
    members = {
        name: Member(
            config=entry["config"],
            is_open=entry.get("open", False),
            only=entry.get("only"),
            renamed_to=entry.get("renamed_to", ""),
            present=entry["source"],
        )
        for name, entry in raw["members"].items()
    }
    return Union(key=raw["on"], base=raw["base"], members=members)
