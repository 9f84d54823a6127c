"""Keeps text that people wrote from turning into control tokens.

A tokenizer takes the text of a control token for the token wherever it stands. So that it cannot, a mark is put inside
every such text before it is rendered, and the rendered prompt is tokenised piece by piece between the marks: all words
reach the model, as ordinary tokens. Stronger than refusing them: a user may ask about a control token, and a web page
that a tool fetched cannot make a conversation fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from .errors import ChatError

__all__ = ["MARKS", "ControlTexts", "Protection"]

MARKS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Code points that Unicode keeps free for a program's own use; no text should have them."""
_KEY_CHARS = 3


class ControlTexts:
    """The texts of all control tokens of a tokenizer, of two characters or more."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._tokens = tuple(dict.fromkeys(t for t in tokens if len(t) > 1))
        self._by_key: dict[str, list[str]] = {}
        for token in self._tokens:
            self._by_key.setdefault(token[:_KEY_CHARS], []).append(token)
        self._key_lengths = sorted({len(key) for key in self._by_key})
        self._maybe = _beginnings(self._by_key)
        self._firsts = {token[0] for token in self._tokens}
        self._lasts = {token[-1] for token in self._tokens}
        self._longest = max(map(len, self._tokens), default=0)

    def breaks(self, text: str) -> list[int]:
        """Where the text has to be cut so that no piece of it is, or helps to make up, a control token."""
        cuts = {found.end() for found in self._maybe.finditer(text) if self._has_token(text, found.start())}
        if self._begins_one_at_its_end(text):
            cuts.add(len(text))
        if self._ends_one_at_its_start(text):
            cuts.add(0)
        return sorted(cuts)

    def _has_token(self, text: str, at: int) -> bool:
        keys = (text[at : at + length] for length in self._key_lengths)
        return any(text.startswith(token, at) for key in keys for token in self._by_key.get(key, ()))

    def _begins_one_at_its_end(self, text: str) -> bool:
        start = max(0, len(text) - self._longest + 1)
        tails = (text[at:] for at in range(start, len(text)) if text[at] in self._firsts)
        return any(token.startswith(tail) for tail in tails for token in self._tokens)

    def _ends_one_at_its_start(self, text: str) -> bool:
        heads = (text[: n + 1] for n, char in enumerate(text[: self._longest - 1]) if char in self._lasts)
        return any(token.endswith(head) for head in heads for token in self._tokens)


class Protection:
    """Marks the texts of one conversation; `pieces` cuts the rendered prompt at the marks again."""

    def __init__(self, texts: Iterable[str]) -> None:
        """`texts`: all that go into the conversation; the mark is a code point that none of them has."""
        listed = [text for text in texts if not text.isascii()]
        mark = next((mark for mark in MARKS if not any(mark in text for text in listed)), None)
        if mark is None:
            raise ChatError("messages", f"the conversation holds all of the {len(MARKS)} noncharacters from U+FDD0 on")
        self.mark = mark

    def protect(self, text: str, control: ControlTexts, field: str = "messages") -> str:
        """Raises ChatError for half a surrogate pair, which no tokenizer can take."""
        if not text.isascii():
            if self.mark in text:  # from an escape inside JSON text
                raise ChatError(field, f"a text holds the noncharacter U+{ord(self.mark):04X}")
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise ChatError(field, "a text holds half of a surrogate pair") from None
        cuts = control.breaks(text)
        if not cuts:
            return text
        edges = [0, *cuts, len(text)]
        return self.mark.join(text[a:b] for a, b in pairwise(edges))

    def pieces(self, prompt: str) -> list[str]:
        return [piece for piece in prompt.split(self.mark) if piece]

    def without_marks(self, prompt: str) -> str:
        return prompt.replace(self.mark, "")


def _beginnings(keys: Iterable[str]) -> re.Pattern[str]:
    """The first character of whatever begins like a key; a search of its own, because long texts have many of them."""
    firsts = "".join(sorted({re.escape(key[0]) for key in keys}))
    rests = "|".join(sorted({re.escape(key[1:]) for key in keys}))
    return re.compile(f"[{firsts}](?=(?:{rests}))" if firsts else r"(?!)")
