"""The DSML blocks of V3.2 (`function_calls`), V4 (`tool_calls`) and V4.1 (tag names with a leading blank):

    <|DSML|tool_calls>
    <|DSML|invoke name="f">
    <|DSML|parameter name="x" string="true">text</|DSML|parameter>
    </|DSML|invoke>
    </|DSML|tool_calls>

(with full-width bars). The parameters become one JSON object: `string="true"` is raw text, `"false"` a JSON value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from ..markers import unfinished_from
from .events import CallArguments, CallEnd, CallStart, Event, Outcome

__all__ = ["DSML", "DSML_BLOCKS", "DSML_OPENERS", "DsmlReader"]

DSML = "｜DSML｜"
DSML_BLOCKS = {"function_calls": "", "tool_calls": "", " calls": " "}
"""Name of the block's tag -> what stands before the names of the tags in it."""
DSML_OPENERS = tuple(f"<{DSML}{name}>" for name in DSML_BLOCKS)
_MAX_TAG_CHARS = 512
_NAME = re.compile(r'\s*name="([^"]+)"\s*')
_PARAMETER = re.compile(r'\s*name="([^"]*)"\s+string="(true|false)"\s*')

_Step = tuple[str, "Outcome | None"]


class DsmlReader:
    def __init__(self, opener: str, raw: str, next_index: int) -> None:
        block = opener[len(DSML) + 1 : -1]
        blank = DSML_BLOCKS[block]
        self._block_end = f"</{DSML}{block}>"
        self._call, self._call_end = f"<{DSML}{blank}invoke", f"</{DSML}{blank}invoke>"
        self._value, self._value_end = f"<{DSML}{blank}parameter", f"</{DSML}{blank}parameter>"
        self.pending = raw
        self.next_index = next_index
        self.is_in_call = False
        self._first_index = next_index
        self._names: set[str] = set()
        self._state: Callable[[str, list[Event]], _Step] = self._between

    def read(self, text: str, events: list[Event]) -> tuple[str, Outcome]:
        outcome: Outcome | None = None
        while outcome is None:
            text, outcome = self._state(text, events)
        return text, outcome

    def _between(self, text: str, events: list[Event]) -> _Step:
        rest = text.lstrip()
        if rest.startswith(self._block_end):
            has_calls = self.next_index > self._first_index
            self.pending += "" if has_calls else self._block_end
            return rest[len(self._block_end) :], Outcome.DONE if has_calls else Outcome.BROKEN
        if not rest.startswith(self._call):
            return text, self._more_or_broken(rest, self._call, self._block_end)
        tag, rest, outcome = _tag(text, rest, self._call, _NAME)
        if tag is None:
            return rest, outcome
        events.append(CallStart(self.next_index, tag[1]))
        events.append(CallArguments(self.next_index, "{"))
        self.next_index += 1
        self.is_in_call, self.pending, self._names = True, "", set()
        self._state = self._in_call
        return rest, None

    def _in_call(self, text: str, events: list[Event]) -> _Step:
        rest = text.lstrip()
        if rest.startswith(self._call_end):
            self._add("}", events)
            events.append(CallEnd(self.next_index - 1, is_whole=True))
            self.is_in_call, self._state = False, self._between
            return rest[len(self._call_end) :], None
        if not rest.startswith(self._value):
            return text, self._more_or_broken(rest, self._value, self._call_end)
        tag, rest, outcome = _tag(text, rest, self._value, _PARAMETER)
        if tag is None:
            return rest, outcome
        name, is_text = tag[1], tag[2] == "true"
        if name in self._names:
            return text, Outcome.BROKEN
        key = f"{', ' if self._names else ''}{_json(name)}: "
        self._names.add(name)
        self._add(key + ('"' if is_text else ""), events)
        self._state = self._text_value if is_text else self._json_value
        return rest, None

    def _text_value(self, text: str, events: list[Event]) -> _Step:
        value, end, rest = text.partition(self._value_end)
        if end:
            self._add(_json(value)[1:], events)
            self._state = self._in_call
            return rest, None
        hold = unfinished_from(text, (self._value_end,))
        self._add(_json(text[:hold])[1:-1], events)
        return text[hold:], Outcome.MORE

    def _json_value(self, text: str, events: list[Event]) -> _Step:
        """Held until it is whole: what is no JSON is passed on as a text, so that the arguments stay readable."""
        value, end, rest = text.partition(self._value_end)
        if not end:
            return text, Outcome.MORE
        self._add(value.strip() if _is_json(value) else _json(value), events)
        self._state = self._in_call
        return rest, None

    def _more_or_broken(self, rest: str, *tags: str) -> Outcome:
        return Outcome.MORE if any(tag.startswith(rest) for tag in tags) else Outcome.BROKEN

    def _add(self, text: str, events: list[Event]) -> None:
        if text:
            events.append(CallArguments(self.next_index - 1, text))


def _tag(
    text: str, rest: str, start: str, attributes: re.Pattern[str]
) -> tuple[re.Match[str] | None, str, Outcome | None]:
    """The attributes of a tag that begins `rest`, and what follows it; else the whole `text` and what is to be done."""
    end = rest.find(">", len(start))
    inside = rest[len(start) : end if end >= 0 else len(rest)]
    if len(inside) > _MAX_TAG_CHARS or "\n" in inside:
        return None, text, Outcome.BROKEN
    if end < 0:
        return None, text, Outcome.MORE
    found = attributes.fullmatch(inside)
    return (found, rest[end + 1 :], None) if found else (None, text, Outcome.BROKEN)


def _json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_json(value: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)  # NaN and Infinity are not JSON

    try:
        json.loads(value, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True
