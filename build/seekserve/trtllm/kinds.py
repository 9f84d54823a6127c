"""The small language of types in the facts files: `int`, `list[str]`, `map[int,int]`, `config:NAME`, `a|b`, `a?`.

Stricter than TensorRT-LLM, which turns the text "0.9" into a number: text where a number is due is a mistake here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Kind", "accepts", "describe", "kind_of", "named"]

_WORDS: Final = {
    "bool": "true or false",
    "flag": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "path": "a path",
    "scalar": "text, a number, or true or false",
    "any": "any value",
    "auto": "auto",
    "object": "a Python object",
    "ints": "whole numbers with commas between them",
    "devices": 'GPU numbers as in "0,1;2,3"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    """A word of `_WORDS`, or list, map, config, union, either."""
    parts: tuple[Kind, ...] = ()
    target: str = ""
    """Of config and union: which one."""
    takes_null: bool = False


@functools.cache
def kind_of(text: str) -> Kind:
    takes_null = text.endswith("?")
    body = text.removesuffix("?")
    choices = _split(body, "|")
    if len(choices) > 1:
        return Kind(name="either", parts=tuple(map(kind_of, choices)), takes_null=takes_null)
    head, colon, target = body.partition(":")
    if colon:
        return Kind(name=head, target=target, takes_null=takes_null)
    head, bracket, inner = body.partition("[")
    if bracket:
        parts = tuple(map(kind_of, _split(inner.removesuffix("]"), ",")))
        return Kind(name=head, parts=parts, takes_null=takes_null)
    assert body in _WORDS, text
    return Kind(name=body, takes_null=takes_null)


def named(kind: Kind, name: str) -> Kind | None:
    """The part of an alternative that has this name, e.g. the config in `config:X|path`."""
    if kind.name == name:
        return kind
    return next((part for part in kind.parts if part.name == name), None) if kind.name == "either" else None


def accepts(kind: Kind, value: object) -> bool:
    """Of a config or union only that it is a mapping; its members are checked elsewhere."""
    if value is None:
        return kind.takes_null or kind.name == "any"
    if kind.name == "either":
        return any(accepts(part, value) for part in kind.parts)
    if kind.name == "list":
        return isinstance(value, list) and all(accepts(kind.parts[0], item) for item in value)
    if kind.name == "map":
        key, item = kind.parts
        return isinstance(value, dict) and all(accepts(key, k) and accepts(item, v) for k, v in value.items())
    if kind.name in ("config", "union"):
        return isinstance(value, dict)
    return _accepts_one(kind.name, value)


def describe(kind: Kind) -> str:
    return _describe(kind) + (" or null" if kind.takes_null else "")


def _accepts_one(name: str, value: object) -> bool:
    if name in ("bool", "flag"):
        return isinstance(value, bool)
    if name == "int":
        return type(value) is int
    if name == "float":
        return type(value) is int or (isinstance(value, float) and math.isfinite(value))
    if name in ("str", "path", "ints", "devices"):
        return isinstance(value, str)
    if name == "scalar":
        return isinstance(value, (str, int, float))
    return name == "any" or (name == "auto" and value == "auto")


def _describe(kind: Kind) -> str:
    if kind.name == "either":
        return " or ".join(_describe(part) for part in kind.parts)
    if kind.name == "list":
        return f"a list of {_plural(kind.parts[0])}"
    if kind.name == "map":
        return f"a mapping of {_plural(kind.parts[0])} to {_plural(kind.parts[1])}"
    if kind.name in ("config", "union"):
        return "a mapping"
    return _WORDS[kind.name]


def _plural(kind: Kind) -> str:
    words = {"int": "whole numbers", "float": "numbers", "str": "texts", "list": "lists of whole numbers"}
    return words.get(kind.name, "values")


def _split(text: str, mark: str) -> Sequence[str]:
    """At `mark` outside brackets."""
    out, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == mark and depth == 0:
            out.append("")
        else:
            out[-1] += letter
    return out
