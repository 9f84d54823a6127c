"""A chat's answer taken apart: reasoning, content and tool calls, while it streams or as a whole. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from seekserve_backend.text.reasoning import PieceKind, ReasoningSplit
from seekserve_backend.text.tool_calls import CallArguments, CallEnd, CallStart, Content, Event, ToolCallParser

__all__ = ["AnswerReader", "ChatAnswer", "ToolCall", "read_answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    name: str
    arguments: str
    """JSON text, as far as the model kept to its format."""
    is_whole: bool
    """False: cut off or malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    content: str
    reasoning: str | None
    """None when there was none."""
    tool_calls: tuple[ToolCall, ...] = ()
    is_malformed: bool = False
    """Something looked like a tool call and was none; it is in `content`."""


class AnswerReader:
    """`feed` returns what was added to the reasoning and to the content; then `finish`, then `answer`."""

    def __init__(self, chat_state: str | None, *, has_tools: bool = False) -> None:
        """`chat_state` None: the text is no chat's, or its server does not say; then all of it is content.

        `has_tools`: tools were offered, so calls are looked for.
        """
        self._split = None if chat_state is None else ReasoningSplit(chat_state == "thinking")
        self._parser = ToolCallParser() if has_tools else None
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[list[str]] = []
        self._whole: list[bool] = []

    def feed(self, text: str) -> tuple[str, str]:
        return self._take(text, is_end=False)

    def finish(self) -> tuple[str, str]:
        """What was held back."""
        return self._take("", is_end=True)

    @property
    def answer(self) -> ChatAnswer:
        return ChatAnswer(
            content="".join(self._content),
            reasoning="".join(self._reasoning) if self._reasoning else None,
            tool_calls=tuple(
                ToolCall(name=name, arguments="".join(arguments), is_whole=is_whole)
                for (name, *arguments), is_whole in zip(self._calls, self._whole, strict=True)
            ),
            is_malformed=self._parser is not None and self._parser.is_malformed,
        )

    def _take(self, text: str, *, is_end: bool) -> tuple[str, str]:
        reasoning, content = "", text
        if self._split is not None:
            pieces = self._split.feed(text) + (self._split.finish() if is_end else [])
            reasoning = "".join(piece.text for piece in pieces if piece.kind is PieceKind.REASONING)
            content = "".join(piece.text for piece in pieces if piece.kind is PieceKind.CONTENT)
        if self._parser is not None:
            events = self._parser.feed(content) + (self._parser.finish() if is_end else [])
            content = "".join(map(self._note, events))
        if reasoning:
            self._reasoning.append(reasoning)
        if content:
            self._content.append(content)
        return reasoning, content

    def _note(self, event: Event) -> str:
        """Keeps what belongs to a call; returns the content of the event."""
        if isinstance(event, Content):
            return event.text
        if isinstance(event, CallStart):
            self._calls.append([event.name])
            self._whole.append(False)
        elif isinstance(event, CallArguments):
            self._calls[event.index].append(event.text)
        elif isinstance(event, CallEnd):
            self._whole[event.index] = event.is_whole
        return ""


def read_answer(text: str, chat_state: str | None, *, has_tools: bool = False) -> ChatAnswer:
    """The whole `text` of an answer taken apart."""
    reader = AnswerReader(chat_state, has_tools=has_tools)
    reader.feed(text)
    reader.finish()
    return reader.answer
