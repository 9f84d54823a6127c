"""The table of request fields that the gateway takes: kind, range, and which value means "off".

A field that is not in a table is refused by name, one whose value cannot be honoured too: nothing is ignored in
silence. Every fault of a body is reported, the first one as `param`. null always means: not given.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["FREE", "NUMBERS", "NumberField", "Reader", "neutral_problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberField:
    name: str
    low: float
    high: float
    is_whole: bool = False
    is_low_open: bool = False
    """`low` itself is not allowed."""
    off: tuple[float, ...] = ()
    """Values that mean the same as leaving it out."""
    target: str = ""
    """Field of the client's request; empty: the same name."""

    def problem(self, value: Any) -> str | None:
        wanted = "a whole number" if self.is_whole else "a number"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"expected {wanted}, got {_shown(value)}"
        if not math.isfinite(value) or (self.is_whole and value != int(value)):
            return f"expected {wanted}, got {_shown(value)}"
        if value in self.off or (self.low <= value <= self.high and not (self.is_low_open and value == self.low)):
            return None
        least = f"above {self.low:g}" if self.is_low_open else f"at least {_number(self.low)}"
        also = f" ({' or '.join(_number(v) for v in self.off)}: off)" if self.off else ""
        return f"must be {least} and at most {_number(self.high)}{also}, got {_shown(value)}"


NUMBERS: tuple[NumberField, ...] = (
    NumberField(name="temperature", low=0, high=2),
    NumberField(name="top_p", low=0, high=1, is_low_open=True),
    NumberField(name="top_k", low=1, high=2**31 - 1, is_whole=True, off=(-1, 0)),
    NumberField(name="min_tokens", low=0, high=2**31 - 1, is_whole=True),
    NumberField(name="max_tokens", low=1, high=2**31 - 1, is_whole=True),
    NumberField(name="max_completion_tokens", low=1, high=2**31 - 1, is_whole=True),
    NumberField(name="presence_penalty", low=-2, high=2),
    NumberField(name="frequency_penalty", low=-2, high=2),
    NumberField(name="repetition_penalty", low=0, high=100, is_low_open=True),
    NumberField(name="seed", low=-(2**63), high=2**63 - 1, is_whole=True),
    NumberField(name="n", low=1, high=16, is_whole=True),
)

# Fields of the OpenAI API that no engine here has: taken where they ask for nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "logit_bias": ({},),
    "suffix": ("",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "functions": ([],),
    "function_call": ("none",),
    "parallel_tool_calls": (True,),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
}
# Labels of the caller's own that are not meant to change an answer.
FREE = ("user", "metadata", "safety_identifier", "prompt_cache_key")


def neutral_problem(name: str, value: Any) -> str | None:
    """Why the value of a field that no engine here has cannot be taken; KeyError for a name that is not one."""
    allowed = _NEUTRAL[name]
    if any(type(value) is type(each) and value == each for each in allowed):
        return None
    instead = "; use tools" if name in ("functions", "function_call") else ""
    only = f", or send {' or '.join(map(_shown, allowed))}" if allowed else ""
    return f"not supported here{instead}; leave it out{only}"


class Reader:
    """Reads one body key by key and gathers every fault as (param, sentence)."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self._seen: set[str] = set()
        self.problems: list[tuple[str, str]] = []

    def bad(self, name: str, sentence: str) -> None:
        self.problems.append((name, sentence))

    def raw(self, name: str) -> Any:
        self._seen.add(name)
        return self._body.get(name)

    def number(self, field: NumberField) -> Any:
        """None where it was not given, is off or is wrong."""
        value = self.raw(field.name)
        if value is None:
            return None
        sentence = field.problem(value)
        if sentence is not None:
            self.bad(field.name, sentence)
            return None
        if value in field.off:
            return None
        return int(value) if field.is_whole else float(value)

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.bad(name, f"expected true or false, got {_shown(value)}")
            return default
        return value

    def text(self, name: str) -> str | None:
        value = self.raw(name)
        if value is None or isinstance(value, str):
            return value
        self.bad(name, f"expected a text, got {_shown(value)}")
        return None

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self.raw(name)
        if value is None or isinstance(value, Mapping):
            return value
        self.bad(name, f"expected an object, got {_shown(value)}")
        return None

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """One text or several; empty ones ask for nothing."""
        value = self.raw(name)
        if value is None or isinstance(value, str):
            return (value,) if value else ()
        if not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
            self.bad(name, f"expected a text or a list of texts, got {_shown(value)}")
            return ()
        given = tuple(each for each in value if each)
        if len(given) > most:
            self.bad(name, f"{len(given)} texts, at most {most} are taken")
        return given

    def rest(self) -> None:
        """What asks for nothing is taken, everything that was not read is a fault."""
        for name, value in self._body.items():
            if name in self._seen or name in FREE or value is None:
                continue
            if name in _NEUTRAL:
                if (sentence := neutral_problem(name, value)) is not None:
                    self.bad(name, sentence)
                continue
            near = difflib.get_close_matches(name, self._seen, 1)
            self.bad(name[:64], "unknown field" + (f" (did you mean {near[0]}?)" if near else ""))


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


def _shown(value: Any) -> str:
    """For a message: never a whole prompt."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
