"""Types of LLM arguments as small checkers: value in, value out, Refused when it does not fit.

Stricter than pydantic's lax mode on purpose: text is no number, a truth value is no number, 8.0 is no whole number.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "Kind",
    "Refused",
    "boolean",
    "either",
    "has",
    "list_of",
    "map_of",
    "number",
    "opt",
    "set_of",
    "text",
    "word",
]

Kind = Callable[[Any, str], Any]
"""Of a value and the letter of a snapshot."""


class Refused(Exception):
    """The value does not fit; the text says why."""


def has(letters: str, at: str) -> bool:
    """Whether snapshot `at` is among them; D is B with a few names more."""
    return at in letters or (at == "D" and "B" in letters)


def anything(value: Any, at: str) -> Any:
    del at
    return value


def boolean(value: Any, at: str) -> Any:
    del at
    return value if isinstance(value, bool) else _no(value, "true or false")


def number(*, whole: bool = True, low: float = -math.inf, high: float = math.inf, above: float = -math.inf) -> Kind:
    def check(value: Any, at: str) -> Any:
        del at
        is_number = type(value) is int or (not whole and isinstance(value, float) and math.isfinite(value))
        if not is_number:
            _no(value, "a whole number" if whole else "a number")
        if value < low or value > high or value <= above:
            raise Refused(f"{value} is out of range")
        return value

    return check


def text(value: Any, at: str) -> Any:
    del at
    return str(value) if isinstance(value, str) else _no(value, "text")


def path(value: Any, at: str) -> Any:
    del at
    return value if isinstance(value, (str, Path)) else _no(value, "a path")


def word(
    words: Mapping[str, str] | tuple[str, ...], *, folds: bool = False, members: type[enum.Enum] | None = None
) -> Kind:
    """One of `words`; as a mapping, with the letters of the snapshots that have it."""

    def check(value: Any, at: str) -> Any:
        known = [each for each in words if not isinstance(words, Mapping) or has(words[each], at)]
        if members is not None and isinstance(value, members):
            value = value.value if isinstance(value.value, str) else value.name
        if not isinstance(value, str):
            _no(value, "text")
        for each in known:
            if value == each or (folds and value.upper() == each.upper()):
                return each
        raise Refused(f"{value!r} is not one of {', '.join(known)}")

    return check


def opt(kind: Kind) -> Kind:
    return lambda value, at: None if value is None else kind(value, at)


def list_of(kind: Kind, *, least: int = 0) -> Kind:
    def check(value: Any, at: str) -> Any:
        if not isinstance(value, (list, tuple)):
            _no(value, "a list")
        if len(value) < least:
            raise Refused(f"has {len(value)} elements, needs {least}")
        return [kind(item, at) for item in value]

    return check


def set_of(kind: Kind) -> Kind:
    def check(value: Any, at: str) -> Any:
        if not isinstance(value, (list, tuple, set, frozenset)):
            _no(value, "a list")
        return {kind(item, at) for item in value}

    return check


def map_of(key: Kind, item: Kind) -> Kind:
    def check(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            _no(value, "a mapping")
        return {key(k, at): item(v, at) for k, v in value.items()}

    return check


def either(*kinds: Kind) -> Kind:
    def check(value: Any, at: str) -> Any:
        reasons = []
        for kind in kinds:
            try:
                return kind(value, at)
            except Refused as reason:
                reasons.append(str(reason))
        raise Refused("; ".join(reasons))

    return check


def _no(value: Any, due: str) -> Any:
    raise Refused(f"{value!r} is not {due}")
