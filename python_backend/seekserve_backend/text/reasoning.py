"""Splits a model's output into reasoning and content at the thinking tags, piece by piece.

Whether the output begins inside the reasoning is decided by the rendered prompt, never by a model's name: most
templates write the opening tag themselves, and some models do. Tags are taken out, all other text stays as it is.
Invariant: the joined pieces do not depend on how the text was cut.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .markers import unfinished_from

if TYPE_CHECKING:
    from .token_bytes import TokenBytes

__all__ = ["THINK_END", "THINK_START", "Piece", "PieceKind", "ReasoningSplit", "chat_state", "ends_in_thinking"]

THINK_START, THINK_END = "<think>", "</think>"
_BLANKS = " \t\r\n"
_TAIL_TOKENS = 16  # enough for the tag in single bytes and blanks after it


class PieceKind(enum.Enum):
    CONTENT = "content"
    REASONING = "reasoning"


class Piece(NamedTuple):
    kind: PieceKind
    text: str
    """Never empty."""


def ends_in_thinking(prompt: str) -> bool:
    """Whether the answer to this rendered prompt begins inside the reasoning."""
    return prompt.rstrip(_BLANKS).endswith(THINK_START)


def chat_state(prompt_ids: Sequence[int], vocabulary: TokenBytes) -> str:
    """`thinking` when the answer to these tokens begins inside the reasoning, else `content`."""
    tail = b"".join(vocabulary.get(token_id, skip_special=False) for token_id in prompt_ids[-_TAIL_TOKENS:])
    return "thinking" if ends_in_thinking(tail.decode("utf-8", "replace")) else "content"


class ReasoningSplit:
    """`starts_in_thinking`: the prompt opened the reasoning. An opening tag counts at the very start only (models that
    write it themselves, or write it again), with the blanks before it; the first closing tag ends the reasoning.
    """

    def __init__(self, starts_in_thinking: bool) -> None:
        self._is_thinking = starts_in_thinking
        self._is_at_start = True
        self._held = ""
        self._is_finished = False

    @property
    def is_thinking(self) -> bool:
        """Now inside the reasoning: an answer that ends here has no content."""
        return self._is_thinking

    def feed(self, text: str) -> list[Piece]:
        if self._is_finished:
            raise RuntimeError("the reasoning split was finished; a new output needs a new one")
        text = self._held + text
        self._held = ""
        if self._is_at_start:
            rest = text.lstrip(_BLANKS)
            if rest.startswith(THINK_START):
                text, self._is_thinking = rest[len(THINK_START) :], True
            elif THINK_START.startswith(rest):  # nothing yet, or half of the tag
                self._held = text
                return []
            self._is_at_start = False
        return self._split(text) if self._is_thinking else _pieces((PieceKind.CONTENT, text))

    def finish(self) -> list[Piece]:
        """What was held back: half a tag that did not become one."""
        self._is_finished = True
        kind = PieceKind.REASONING if self._is_thinking else PieceKind.CONTENT
        held, self._held = self._held, ""
        return _pieces((kind, held))

    def _split(self, text: str) -> list[Piece]:
        reasoning, tag, content = text.partition(THINK_END)
        if tag:
            self._is_thinking = False
            return _pieces((PieceKind.REASONING, reasoning), (PieceKind.CONTENT, content))
        hold = unfinished_from(text, (THINK_END,))
        self._held = text[hold:]
        return _pieces((PieceKind.REASONING, text[:hold]))


def _pieces(*parts: tuple[PieceKind, str]) -> list[Piece]:
    return [Piece(kind, text) for kind, text in parts if text]
