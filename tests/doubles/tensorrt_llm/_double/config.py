"""Configuration classes that forbid what they do not know, as the pydantic models of the package do.

A class has a field list for each snapshot of the source. A release between two snapshots is held to one or the other as
a whole: what neither takes is refused; what one takes passes, unless DOUBLE_TRTLLM_DOUBTS says {"args": "refuse"}.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .kinds import Kind, Refused, has
from .profile import DOUBTS, PROFILE

__all__ = ["CLASSES", "Config", "Field", "ValidationError", "config", "define", "field_names", "remade", "rule"]

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "required"})()


class ValidationError(ValueError):
    """As pydantic's: a ValueError with all complaints in its text."""


@dataclass(frozen=True, slots=True)
class Field:
    kind: Kind
    default: Any = None
    at: str = "AB"
    """Letters of the snapshots that have it."""
    changed: Any = MISSING
    """Its default since snapshot B, where that differs."""
    alias: str = ""
    """Another name under which it may be given."""

    def default_at(self, at: str) -> Any:
        value = self.changed if at != "A" and self.changed is not MISSING else self.default
        return value() if callable(value) else value


Fields = Mapping[str, Field]
Values = dict[str, Any]
Rule = Callable[[Values, str, Mapping[str, Any]], None]
"""Of the values, the snapshot and what was given; may complete the values, raises Refused."""

CLASSES: dict[str, type[Config]] = {}


class Config:
    """Base of all. Keywords only; unknown ones, wrong types and broken rules raise ValidationError."""

    FIELDS: ClassVar[Fields] = {}
    RULES: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, /, **given: Any) -> None:
        values, state = _resolve(type(self), given)
        object.__setattr__(self, "_given", dict(given))
        object.__setattr__(self, "_state", state)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).FIELDS:
            raise ValueError(f"{type(self).__name__} has no field {name}")
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.model_dump() == other.model_dump()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.model_dump().items())})"

    def model_dump(self, *, exclude_unset: bool = False) -> Values:
        names = [name for name in field_names(type(self), self._state) if not exclude_unset or name in self._given]
        return {name: _dumped(getattr(self, name)) for name in names}

    _given: Mapping[str, Any]
    _state: str


def define(name: str, *, base: type[Config] = Config, fields: Fields) -> type[Config]:
    made = type(name, (base,), {"FIELDS": {**base.FIELDS, **fields}, "__module__": "tensorrt_llm.llmapi.llm_args"})
    made.__signature__ = _signature(made)  # type: ignore[attr-defined]
    CLASSES[name] = made
    return made


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Adds a rule to classes that are defined already, and to those derived from them."""

    def add(function: Rule) -> Rule:
        for name in names:
            CLASSES[name].RULES = (*CLASSES[name].__dict__.get("RULES", ()), function)
        return function

    return add


def config(name: str) -> Kind:
    """A mapping, or an object of the class."""

    def check(value: Any, at: str) -> Any:
        cls = CLASSES[name]
        if isinstance(value, cls):
            return remade(type(value), value._given, at)
        if not isinstance(value, dict):
            raise Refused(f"{value!r} is neither a mapping nor a {name}")
        return remade(cls, value, at)

    return check


def field_names(cls: type[Config], at: str) -> list[str]:
    return [name for name, field in cls.FIELDS.items() if has(field.at, at)]


def validate(cls: type[Config], given: Mapping[str, Any], at: str) -> Values:
    """All values of the class in one snapshot. Raises Refused."""
    fields = {name: field for name, field in cls.FIELDS.items() if has(field.at, at)}
    if not fields:
        raise Refused(f"{cls.__name__} does not exist")
    names = {**{field.alias: name for name, field in fields.items() if field.alias}, **{name: name for name in fields}}
    complaints, values = [], {}
    for key, value in given.items():
        name = names.get(key)
        if name is None:
            complaints.append(f"{key}: extra inputs are not permitted")
            continue
        if name in values:
            complaints.append(f"{key}: is given twice, as {name} too")
        try:
            values[name] = fields[name].kind(value, at)
        except Refused as reason:
            complaints.append(f"{key}: {reason}")
    complaints += [f"{name}: is required" for name, f in fields.items() if f.default is MISSING and name not in values]
    if complaints:
        raise Refused("\n".join(complaints))
    whole = {name: values.get(name, MISSING) for name in fields}
    whole = {name: fields[name].default_at(at) if value is MISSING else value for name, value in whole.items()}
    for base in reversed(cls.__mro__):
        for each in base.__dict__.get("RULES", ()):
            each(whole, at, given)
    return whole


def _resolve(cls: type[Config], given: Mapping[str, Any]) -> tuple[Values, str]:
    found: list[tuple[Values, str]] = []
    reasons = []
    for at in PROFILE.arg_states:
        try:
            found.append((validate(cls, given, at), at))
        except Refused as reason:
            reasons.append(str(reason))
    if not found or (reasons and DOUBTS.args == "refuse"):
        raise ValidationError(f"validation error for {cls.__name__}\n" + "\n".join(reasons))
    return found[0]


def remade(cls: type[Config], given: Mapping[str, Any], at: str) -> Config:
    values = validate(cls, given, at)
    made = object.__new__(cls)
    object.__setattr__(made, "_given", dict(given))
    object.__setattr__(made, "_state", at)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _dumped(value: Any) -> Any:
    if isinstance(value, Config):
        return value.model_dump()
    return [_dumped(item) for item in value] if isinstance(value, list) else value


def _signature(cls: type[Config]) -> inspect.Signature:
    at = PROFILE.arg_states[0]
    known = {name: field for name, field in cls.FIELDS.items() if any(has(field.at, at) for at in PROFILE.arg_states)}
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default_at(at),
            )
            for name, field in known.items()
        ]
    )
