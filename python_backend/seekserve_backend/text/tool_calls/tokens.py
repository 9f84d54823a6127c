"""The tool tokens of V2.5, V3 and R1, and of V3.1:

    calls-begin call-begin function SEP NAME \\n ```json \\n ARGUMENTS \\n ``` call-end ... calls-end
    calls-begin call-begin NAME SEP ARGUMENTS call-end ... calls-end

A function may itself be called `function`; then its arguments tell the two apart. A model that leaves out the outer
pair is understood too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..markers import first_marker, unfinished_from
from .events import CallArguments, CallEnd, CallStart, Event, Outcome

__all__ = [
    "CALLS_BEGIN",
    "CALLS_END",
    "CALL_BEGIN",
    "CALL_END",
    "SEPARATOR",
    "TOKEN_OPENERS",
    "TokenReader",
]

CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
TOKEN_OPENERS = (CALLS_BEGIN, CALL_BEGIN)
_TYPE = "function"
_MAX_NAME_CHARS = 256
_FENCE = re.compile(r"```(?:json)?[ \t]*\r?\n")
_HALF_FENCE = re.compile(r"`{1,3}(?:j(?:s(?:on?)?)?)?[ \t]*\r?")
_FENCE_END = re.compile(r"\s*(?:```)?\s*\Z")
_MAYBE_FENCE_END = re.compile(r"\s*`{0,3}\s*\Z")

_Step = tuple[str, "Outcome | None"]


class TokenReader:
    def __init__(self, opener: str, raw: str, next_index: int) -> None:
        self.pending = raw
        self.next_index = next_index
        self.is_in_call = False
        self._has_outer_pair = opener == CALLS_BEGIN
        self._first_index = next_index
        self._has_arguments = False
        self._state: Callable[[str, list[Event]], _Step] = self._between if self._has_outer_pair else self._header

    def read(self, text: str, events: list[Event]) -> tuple[str, Outcome]:
        outcome: Outcome | None = None
        while outcome is None:
            text, outcome = self._state(text, events)
        return text, outcome

    def _between(self, text: str, _events: list[Event]) -> _Step:
        rest = text.lstrip()
        if rest.startswith(CALL_BEGIN):
            self.pending += CALL_BEGIN
            self._state = self._header
            return rest[len(CALL_BEGIN) :], None
        if not self._has_outer_pair and rest and not CALL_BEGIN.startswith(rest):
            return text, Outcome.DONE
        if rest.startswith(CALLS_END):
            has_calls = self.next_index > self._first_index
            self.pending += "" if has_calls else CALLS_END
            return rest[len(CALLS_END) :], Outcome.DONE if has_calls else Outcome.BROKEN
        return text, Outcome.MORE if _may_become(rest, CALL_BEGIN, CALLS_END) else Outcome.BROKEN

    def _header(self, text: str, events: list[Event]) -> _Step:
        at, outcome = _line_up_to(text, SEPARATOR)
        if at is None:
            return text, outcome
        header, rest = text[:at].strip(), text[at + len(SEPARATOR) :]
        if header == _TYPE and not rest.strip():
            return text, Outcome.MORE
        if header == _TYPE and not rest.lstrip().startswith("{"):
            self.pending += text[: at + len(SEPARATOR)]
            self._state = self._name
            return rest, None
        return self._start(header, rest, events) if header else (text, Outcome.BROKEN)

    def _name(self, text: str, events: list[Event]) -> _Step:
        at, outcome = _line_up_to(text, "\n")
        if at is None:
            return text, outcome
        name = text[:at].strip()
        return self._start(name, text[at + 1 :], events) if name else (text, Outcome.BROKEN)

    def _start(self, name: str, rest: str, events: list[Event]) -> _Step:
        events.append(CallStart(self.next_index, name))
        self.next_index += 1
        self.is_in_call, self._has_arguments = True, False
        self.pending = ""
        self._state = self._fence
        return rest, None

    def _fence(self, text: str, _events: list[Event]) -> _Step:
        rest = text.lstrip()
        found = _FENCE.match(rest)
        if found is None and (not rest or _HALF_FENCE.fullmatch(rest)):
            return text, Outcome.MORE
        self._state = self._arguments
        return rest[found.end() if found else 0 :], None

    def _arguments(self, text: str, events: list[Event]) -> _Step:
        found = first_marker(text, (CALL_END, CALLS_END))
        if found is None:
            hold = unfinished_from(text, (CALL_END, CALLS_END))
            tail = _MAYBE_FENCE_END.search(text, 0, hold)
            hold = tail.start() if tail else hold
            self._add(text[:hold], events)
            return text[hold:], Outcome.MORE
        at, marker = found
        end = _FENCE_END.search(text, 0, at)
        self._add(text[: end.start() if end else at], events)
        if not self._has_arguments:
            self._add("{}", events)
        if marker == CALLS_END:  # the call itself was never closed
            return text[at:], Outcome.BROKEN
        events.append(CallEnd(self.next_index - 1, is_whole=True))
        self.is_in_call = False
        self._state = self._between
        return text[at + len(CALL_END) :], None

    def _add(self, text: str, events: list[Event]) -> None:
        if text:
            self._has_arguments = True
            events.append(CallArguments(self.next_index - 1, text))


def _line_up_to(text: str, end: str) -> tuple[int | None, Outcome]:
    """Where a short line ends. It must not hold a newline, nor the marker that ends a call."""
    at = text.find(end)
    limit = len(text) if at < 0 else at
    is_broken = limit > _MAX_NAME_CHARS or "\n" in text[:limit] or CALL_END in text[:limit]
    if is_broken:
        return None, Outcome.BROKEN
    return (at, Outcome.MORE) if at >= 0 else (None, Outcome.MORE)


def _may_become(text: str, *markers: str) -> bool:
    return any(marker.startswith(text) for marker in markers)
