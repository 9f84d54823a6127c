"""Finds blocks of tool calls between ordinary text, and hands them to the reader of their dialect.

The dialect shows in the opening marker. Nothing is lost: what looks like a call and turns out to be none comes out as
content, with `is_malformed` set. Invariant: the joined content, and each call's name, joined arguments and end, do not
depend on how the text was cut.
"""

from __future__ import annotations

from ..markers import first_marker, unfinished_from
from .dsml import DSML_OPENERS, DsmlReader
from .events import CallEnd, Content, Event, Outcome, Reader
from .tokens import TOKEN_OPENERS, TokenReader

__all__ = ["ToolCallParser"]

_OPENERS = (*TOKEN_OPENERS, *DSML_OPENERS)
_BLANK_LINE = 2  # newlines before a DSML block, which belong to it


class ToolCallParser:
    """`feed` the content of an answer, then `finish`."""

    def __init__(self) -> None:
        self._text = ""
        self._reader: Reader | None = None
        self._is_after_block = False
        self._is_finished = False
        self.calls = 0
        """Begun so far."""
        self.is_malformed = False
        """Something looked like a call and was not one, or not a whole one."""

    def feed(self, text: str) -> list[Event]:
        if self._is_finished:
            raise RuntimeError("the tool call parser was finished; a new output needs a new one")
        self._text += text
        events: list[Event] = []
        while self._step(events):
            pass
        return events

    def finish(self) -> list[Event]:
        """The end of the output: what was held back, and the end of a call that was cut off."""
        self._is_finished = True
        events: list[Event] = []
        if self._reader is not None:
            self._break_off(self._reader, events)
        elif self._is_after_block:
            self._text = self._text.lstrip()
        _add_content(events, self._text)
        self._text = ""
        return events

    def _step(self, events: list[Event]) -> bool:
        """One move; False when more text is needed."""
        reader = self._reader
        if reader is None:
            return self._look_for_a_block(events)
        self._text, outcome = reader.read(self._text, events)
        self.calls = reader.next_index
        if outcome is Outcome.MORE:
            return False
        if outcome is Outcome.BROKEN:
            self._break_off(reader, events)
        self._is_after_block = outcome is Outcome.DONE
        self._reader = None
        return True

    def _break_off(self, reader: Reader, events: list[Event]) -> None:
        self.is_malformed = True
        if reader.is_in_call:
            events.append(CallEnd(reader.next_index - 1, is_whole=False))
        _add_content(events, reader.pending)

    def _look_for_a_block(self, events: list[Event]) -> bool:
        if self._is_after_block:  # blanks at the end of a block, or between two, are no content
            rest = self._text.lstrip()
            if not rest or unfinished_from(rest, _OPENERS) == 0:
                return False
            if rest.startswith(_OPENERS):
                self._text = rest
            self._is_after_block = False
        found = first_marker(self._text, _OPENERS)
        if found is None:
            hold = _before_newlines(self._text, unfinished_from(self._text, _OPENERS))
            _add_content(events, self._text[:hold])
            self._text = self._text[hold:]
            return False
        at, opener = found
        start = _before_newlines(self._text, at) if opener in DSML_OPENERS else at
        _add_content(events, self._text[:start])
        self._reader = self._reader_of(opener, self._text[start : at + len(opener)])
        self._text = self._text[at + len(opener) :]
        return True

    def _reader_of(self, opener: str, raw: str) -> Reader:
        make = DsmlReader if opener in DSML_OPENERS else TokenReader
        return make(opener, raw, self.calls)


def _before_newlines(text: str, at: int) -> int:
    start = at
    while start > max(0, at - _BLANK_LINE) and text[start - 1] == "\n":
        start -= 1
    return start


def _add_content(events: list[Event], text: str) -> None:
    if text:
        events.append(Content(text))
