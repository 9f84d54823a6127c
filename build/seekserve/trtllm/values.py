"""One value against its field: type, bounds and allowed words, as one snapshot of the source has them."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from .finding import ArgFinding, error, warning
from .kinds import accepts, describe
from .schema import ORDER, Field, Snapshot, snapshot

__all__ = ["check_value", "nearest", "shown"]

_BOUNDS: Final[dict[str, tuple[str, Callable[[float, float], bool]]]] = {
    "min": ("at least", operator.ge),
    "max": ("at most", operator.le),
    "above": ("above", operator.gt),
    "below": ("below", operator.lt),
}


def check_value(field: Field, value: object, path: str, at: Snapshot) -> Iterator[ArgFinding]:
    kind = field.kind_in(at)
    if kind.name == "object":
        yield error("argument-object", path, "takes a Python object, which no file or flag can hold", "leave it out")
        return
    if not accepts(kind, value):
        yield error("argument-type", path, f"is {shown(value)} where {describe(kind)} is due", _type_hint(value, field))
        return
    if value is None:
        return
    if kind.name == "any":
        yield warning("argument-unverified", path, f"unverified: not checked any further{_because(field.note)}")
    bounds = field.bounds_in(at)
    yield from _check_length(bounds.get("length"), value, path)
    for item in _leaves(value):
        yield from _check_bounds(bounds, item, path, field.note)
        if type(item) in (int, str):
            yield from _check_word(field, item, path, at)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Case aside."""
    folded = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), folded, 1, 0.72)
    return folded[found[0]] if found else None


def shown(value: object) -> str:
    """Short, and telling the text "0.9" from the number."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = value if len(value) <= 60 else value[:57] + "..."
        return f'the text "{text}"'
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "a mapping" if isinstance(value, dict) else repr(value)


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _check_length(length: float | None, value: object, path: str) -> Iterator[ArgFinding]:
    if length is None:
        return
    if isinstance(value, list) and len(value) < length:
        yield error("argument-range", path, f"has {len(value)} elements where at least {length:.0f} are due")
    if isinstance(value, str) and len(value.strip()) < length:
        yield error("argument-range", path, f"has {len(value.strip())} letters where at least {length:.0f} are due")


def _check_bounds(bounds: Mapping[str, float], item: object, path: str, note: str) -> Iterator[ArgFinding]:
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        return
    for key, (words, holds) in _BOUNDS.items():
        bound = bounds.get(key)
        if bound is not None and not holds(item, bound):
            yield error("argument-range", path, f"is {item} where {words} {bound} is due", note)


def _check_word(field: Field, item: object, path: str, at: Snapshot) -> Iterator[ArgFinding]:
    words = [str(choice) for choice in field.words_in(at)]
    word = str(item)
    if not field.choices or word in words or (field.folds_case and word.upper() in map(str.upper, words)):
        return
    near = nearest(word, words)
    hint = f"did you mean {near}?" if near else f"one of {', '.join(words)}"
    if at.has(field.open_in):
        message = f"unverified: {word} is none of the values that are known"
        yield warning("argument-unverified", path, message, hint)
        return
    present = field.choices.get(word, "")
    yield error("argument-choice", path, f"{word} {_when(present, at)}", hint)


def _when(present: str, at: Snapshot) -> str:
    """Why a word that other versions know is refused here."""
    older = [letter for letter in ORDER if letter in present and ORDER.index(letter) < ORDER.index(at.letter)]
    newer = [letter for letter in ORDER if letter in present and ORDER.index(letter) > ORDER.index(at.letter)]
    if older:
        return f"is removed since TensorRT-LLM {_gone(older[-1])} (last seen in {snapshot(older[-1]).text})"
    if newer:
        return f"exists since TensorRT-LLM {snapshot(newer[0]).label} (first seen in {snapshot(newer[0]).text})"
    return "is not among the allowed values"


def _gone(last: str) -> str:
    return snapshot(ORDER[ORDER.index(last) + 1]).label


def _type_hint(value: object, field: Field) -> str:
    if isinstance(value, str):
        return "write it without quotes" if _looks_numeric(value) else field.note
    if value is None:
        return "leave the key out for the default"
    return field.note


def _looks_numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in ("true", "false")
    return True


def _because(note: str) -> str:
    return f", {note}" if note else ""
