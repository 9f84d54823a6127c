"""Where the pieces of an answer go: into the events of a stream, or into one object at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from starlette.types import Send

from seekserve.client import Delta
from seekserve.gateway.ask import Ask
from seekserve.gateway.bodies import DONE, HEARTBEAT, Head, chat_logprobs, completion_logprobs, usage
from seekserve.gateway.chat_stream import ChatParts, Part, delta_json
from seekserve.gateway.choice import Choice
from seekserve.gateway.http import send_whole, start_stream
from seekserve.gateway.record import Record
from seekserve.gateway.resume import cut

__all__ = ["Sink", "StreamSink", "WholeSink"]

Pieces = list[tuple[str, Sequence[float]]]


class Sink(Protocol):
    async def take(self, choice: Choice, delta: Delta) -> None: ...

    async def end(self, choice: Choice) -> None: ...

    async def finish(self, choices: Sequence[Choice]) -> None:
        """All choices have ended."""
        ...


class StreamSink:
    """Nothing is sent before the first piece is here, so that a refusal still has a status of its own."""

    def __init__(
        self,
        send: Send,
        ask: Ask,
        head: Head,
        record: Record,
        headers: dict[str, str],
        *,
        from_bytes: int | None,
        is_waited_for: bool = False,
    ) -> None:
        """`from_bytes`: of a stream that can be resumed, raw text that the caller has; None: it cannot be resumed.
        `is_waited_for`: the caller wants signs of life before the first token."""
        self._send = send
        self._ask = ask
        self._head = head
        self._record = record
        self._headers = headers
        self._from_bytes = from_bytes
        self._is_waited_for = is_waited_for
        self._read_bytes = 0
        self._parts: dict[int, ChatParts] = {}
        self._pending: dict[int, Pieces] = {}
        self._offsets: dict[int, int] = {}
        self._has_role: set[int] = set()
        self.is_started = False

    async def take(self, choice: Choice, delta: Delta) -> None:
        if not self.is_started:
            await self._start(choice, delta)
        if delta.logprobs:
            self._pending.setdefault(choice.index, []).append((delta.text, delta.logprobs))
        text = delta.text
        if text and self._from_bytes is not None:
            text = self._unread(choice, text, self._from_bytes)
        if not text:
            if self._record.first_s is None and self._is_waited_for:
                # A comment of the protocol: clients skip it, and nothing on the way takes the stream for dead.
                await self._send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
            return
        if self._record.first_s is None:
            self._record.first_s = time.perf_counter()
            self._record.queue_ms = delta.queue_ms
        if self._ask.is_chat:
            await self._write_parts(choice.index, self._parts_of(choice).feed(text))
        else:
            inside = json.dumps(text, ensure_ascii=False)
            await self._write(self._head.chunk(choice.index, inside, logprobs=self._logprobs(choice.index)))

    def _unread(self, choice: Choice, text: str, from_bytes: int) -> str:
        """Counts the raw text; what the caller has already only moves the readers on."""
        before = max(0, from_bytes - self._read_bytes)
        self._read_bytes += len(text.encode("utf-8", "replace"))
        if not before:
            return text
        known, new = cut(text, before)
        if self._ask.is_chat and self._parts_of(choice).feed(known):
            self._has_role.add(choice.index)
        return new

    async def end(self, choice: Choice) -> None:
        completion = choice.completion
        if not self.is_started:
            await self._start(choice, None)
        reason = completion.finish_reason or "stop"
        inside = '""'
        if self._ask.is_chat:
            parts = self._parts_of(choice)
            await self._write_parts(choice.index, parts.finish())
            reason = parts.finish_reason(completion.finish_reason)
            inside = "" if choice.index in self._has_role else '"role":"assistant","content":""'
        logprobs = self._logprobs(choice.index)
        await self._write(self._head.chunk(choice.index, inside, logprobs=logprobs, finish_reason=reason))
        self._record.finish_reason = reason

    async def finish(self, choices: Sequence[Choice]) -> None:
        counts = count(self._ask, choices, self._record)
        tail = self._head.usage_chunk(counts) if self._ask.include_usage and counts is not None else b""
        await self._send({"type": "http.response.body", "body": tail + DONE})

    async def _start(self, choice: Choice, delta: Delta | None) -> None:
        self.is_started = True
        self._record.status = 200
        if delta is not None:
            self._record.queue_ms = delta.queue_ms
        told = {"x-resume-token": choice.resume_token, "x-served-by": choice.served_by}
        await start_stream(self._send, {**self._headers, **{name: text for name, text in told.items() if text}})

    async def _write_parts(self, index: int, parts: Sequence[Part]) -> None:
        for number, part in enumerate(parts, 1):
            inside = delta_json(part)
            if index not in self._has_role:
                # With the first piece, not before it: an empty chunk would pass for a first token.
                self._has_role.add(index)
                inside = '"role":"assistant",' + inside
            chunk = self._head.chunk(index, inside, logprobs=self._logprobs(index))
            await self._write(chunk, has_position=number == len(parts))

    async def _write(self, data: bytes, *, has_position: bool = True) -> None:
        """Of several events made from one piece of text only the last is a position to go on from."""
        if self._from_bytes is not None and has_position:
            data = b"id: %d\n%s" % (self._read_bytes, data)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def _parts_of(self, choice: Choice) -> ChatParts:
        parts = self._parts.get(choice.index)
        if parts is None:
            parts = self._parts[choice.index] = parts_of(self._ask, choice, self._record)
        return parts

    def _logprobs(self, index: int) -> str:
        pieces = self._pending.pop(index, None) if self._ask.wants_logprobs else None
        if not pieces:
            return "null"
        if self._ask.is_chat:
            return json.dumps(chat_logprobs(pieces), ensure_ascii=False)
        start = self._offsets.get(index, 0)
        self._offsets[index] = start + sum(len(text) for text, _ in pieces)
        return json.dumps(completion_logprobs(pieces, start), ensure_ascii=False)


class WholeSink:
    def __init__(self, send: Send, ask: Ask, head: Head, record: Record, headers: dict[str, str]) -> None:
        self._send = send
        self._ask = ask
        self._head = head
        self._record = record
        self._headers = headers
        self._pieces: dict[int, Pieces] = {}
        self._choices: dict[int, Mapping[str, Any]] = {}

    async def take(self, choice: Choice, delta: Delta) -> None:
        self._pieces.setdefault(choice.index, []).append((delta.text, delta.logprobs))
        if self._record.queue_ms is None:
            self._record.queue_ms = delta.queue_ms

    async def end(self, choice: Choice) -> None:
        completion, pieces = choice.completion, self._pieces.pop(choice.index, [])
        reason = completion.finish_reason or "stop"
        out: dict[str, Any] = {"index": choice.index}
        if self._ask.is_chat:
            parts = parts_of(self._ask, choice, self._record)
            parts.feed(completion.text)
            parts.finish()
            reason = parts.finish_reason(completion.finish_reason)
            out["message"] = parts.message()
        else:
            out["text"] = completion.text
        to_logprobs = chat_logprobs if self._ask.is_chat else completion_logprobs
        out["logprobs"] = to_logprobs(pieces) if self._ask.wants_logprobs else None
        out["finish_reason"] = self._record.finish_reason = reason
        self._choices[choice.index] = out

    async def finish(self, choices: Sequence[Choice]) -> None:
        self._record.status = 200
        counts = count(self._ask, choices, self._record)
        body = self._head.whole([self._choices[index] for index in sorted(self._choices)], counts)
        models = dict.fromkeys(each.served_by for each in choices if each.served_by)
        await send_whole(
            self._send, 200, body, {**self._headers, **({"x-served-by": ", ".join(models)} if models else {})}
        )


def parts_of(ask: Ask, choice: Choice, record: Record) -> ChatParts:
    options = ask.fields.get("chat_options") or {}
    return ChatParts(
        chat_state=choice.chat_state,
        has_tools=bool(options.get("tools")) and options.get("tool_choice") != "none",
        id_stem=f"{record.request_id[:16]}_{choice.index}",
    )


def count(ask: Ask, choices: Sequence[Choice], record: Record) -> dict[str, int] | None:
    prompts = [choices[number * ask.n].completion.prompt_tokens for number in range(len(ask.prompts))]
    counts = usage(prompts, [choice.completion.completion_tokens for choice in choices])
    if counts is not None:
        record.prompt_tokens, record.completion_tokens = counts["prompt_tokens"], counts["completion_tokens"]
    return counts
