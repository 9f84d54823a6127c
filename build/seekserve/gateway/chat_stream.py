"""Raw text of a chat answer -> reasoning, content and tool calls, piece by piece, for any chunking.

The splitting itself is `seekserve_backend.text`'s; here it is joined, and calls get ids. Tool calls are looked for only
where the request offered tools: otherwise their markers are text like any other.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from seekserve_backend.text.reasoning import Piece, PieceKind, ReasoningSplit
from seekserve_backend.text.tool_calls import CallArguments, CallStart, Content, Event, ToolCallParser

__all__ = ["ChatParts", "Part", "delta_json"]


class Part(NamedTuple):
    """What a delta of the OpenAI protocol carries; exactly one of the three kinds."""

    kind: str
    """content, reasoning, call (a call begins: its name) or arguments"""
    text: str
    call: int = 0
    call_id: str = ""


class ToolCall:
    """One call as it comes in."""

    def __init__(self, call_id: str, name: str) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments: list[str] = []

    def to_json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.call_id, "type": "function", "function": function}


class ChatParts:
    """State of one choice. `feed` with the raw text, then `finish`; the joined answer is kept beside."""

    def __init__(self, *, chat_state: str | None, has_tools: bool, id_stem: str) -> None:
        """`chat_state`: thinking or content, as the server says of the rendered prompt; None where it does not say."""
        self._split = ReasoningSplit(chat_state == "thinking")
        self._parser = ToolCallParser() if has_tools else None
        self._id_stem = id_stem
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self.calls: list[ToolCall] = []

    def feed(self, text: str) -> list[Part]:
        return [part for piece in self._split.feed(text) for part in self._take(piece)]

    def finish(self) -> list[Part]:
        parts = [part for piece in self._split.finish() for part in self._take(piece)]
        if self._parser is not None:
            parts += self._events(self._parser.finish())
        return parts

    def finish_reason(self, reason: str | None) -> str:
        """OpenAI's word for it: `tool_calls` where the model ended by itself, after calls that can be made."""
        is_call = self._parser is not None and bool(self.calls) and not self._parser.is_malformed
        return "tool_calls" if is_call and reason in ("stop", None) else reason or "stop"

    def message(self) -> dict[str, Any]:
        content, reasoning = "".join(self._content), "".join(self._reasoning)
        out: dict[str, Any] = {"role": "assistant", "content": content if content or not self.calls else None}
        if reasoning:
            out["reasoning_content"] = reasoning
        if self.calls:
            out["tool_calls"] = [call.to_json() for call in self.calls]
        return out

    def _take(self, piece: Piece) -> list[Part]:
        if piece.kind is PieceKind.REASONING:
            self._reasoning.append(piece.text)
            return [Part("reasoning", piece.text)]
        if self._parser is None:
            return [self._plain(piece.text)]
        return self._events(self._parser.feed(piece.text))

    def _plain(self, text: str) -> Part:
        self._content.append(text)
        return Part("content", text)

    def _events(self, events: list[Event]) -> list[Part]:
        parts = []
        for event in events:
            if isinstance(event, Content):
                parts.append(self._plain(event.text))
            elif isinstance(event, CallStart):
                call = ToolCall(f"call_{self._id_stem}_{event.index}", event.name)
                self.calls.append(call)
                parts.append(Part("call", event.name, event.index, call.call_id))
            elif isinstance(event, CallArguments):
                self.calls[event.index].arguments.append(event.text)
                parts.append(Part("arguments", event.text, event.index))
        return parts


def delta_json(part: Part) -> str:
    """The inside of a chunk's `delta` object, without the braces."""
    text = json.dumps(part.text, ensure_ascii=False)
    if part.kind == "content":
        return f'"content":{text}'
    if part.kind == "reasoning":
        return f'"reasoning_content":{text}'
    if part.kind == "call":
        function = f'{{"name":{text},"arguments":""}}'
        return f'"tool_calls":[{{"index":{part.call},"id":"{part.call_id}","type":"function","function":{function}}}]'
    return f'"tool_calls":[{{"index":{part.call},"function":{{"arguments":{text}}}}}]'
