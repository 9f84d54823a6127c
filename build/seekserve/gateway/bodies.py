"""The objects of the OpenAI protocol as text: chunks of a stream and whole answers. Pure.

Chunks are put together from prepared ends, because one is made for each token; everything that comes from outside goes
through the JSON encoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["DONE", "HEARTBEAT", "Head", "chat_logprobs", "completion_logprobs", "error_event", "usage"]

DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": waiting\n\n"


class Head:
    """What all chunks of an answer share: id, time, model, and the object's name."""

    def __init__(self, *, request_id: str, created_s: int, model: str, is_chat: bool, include_usage: bool) -> None:
        self.is_chat = is_chat
        self._common = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{request_id}",
            "object": "",
            "created": created_s,
            "model": model,
        }
        name = "chat.completion.chunk" if is_chat else "text_completion"
        opened = json.dumps({**self._common, "object": name}, ensure_ascii=False, separators=(",", ":"))[:-1]
        self._start = f'data: {opened},"choices":['
        # OpenAI sends the key with every chunk of a stream that was asked for it.
        self._end = ',"usage":null}\n\n' if include_usage else "}\n\n"

    def chunk(self, index: int, inside: str, *, logprobs: str = "null", finish_reason: str | None = None) -> bytes:
        """`inside`: the inside of `delta` for a chat, the text's JSON for a completion."""
        reason = "null" if finish_reason is None else json.dumps(finish_reason)
        what = f'"delta":{{{inside}}}' if self.is_chat else f'"text":{inside}'
        choice = f'{{"index":{index},{what},"logprobs":{logprobs},"finish_reason":{reason}}}]'
        return (self._start + choice + self._end).encode("utf-8", "replace")

    def usage_chunk(self, usage: Mapping[str, Any]) -> bytes:
        return f'{self._start}],"usage":{json.dumps(usage)}}}\n\n'.encode()

    def whole(self, choices: Sequence[Mapping[str, Any]], usage: Mapping[str, Any] | None) -> bytes:
        name = "chat.completion" if self.is_chat else "text_completion"
        body = {**self._common, "object": name, "choices": list(choices), "usage": usage}
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def error_event(body: bytes) -> bytes:
    """An error in the middle of a stream: the status is sent already, so the object says it."""
    return b"data: " + body + b"\n\n"


def usage(prompt_tokens: Sequence[int | None], completion_tokens: Sequence[int | None]) -> dict[str, int] | None:
    """`prompt_tokens` once for each prompt, `completion_tokens` for each choice; None where a server does not count."""
    prompts = [each for each in prompt_tokens if each is not None]
    completions = [each for each in completion_tokens if each is not None]
    if len(prompts) < len(prompt_tokens) or len(completions) < len(completion_tokens):
        return None
    return {
        "prompt_tokens": sum(prompts),
        "completion_tokens": sum(completions),
        "total_tokens": sum(prompts) + sum(completions),
    }


def chat_logprobs(pieces: Sequence[tuple[str, Sequence[float]]]) -> dict[str, Any]:
    """`pieces`: a text with the log probabilities of the tokens that complete it; the last of them carries the text."""
    return {
        "content": [
            {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "replace")), "top_logprobs": []}
            for token, logprob in _tokens(pieces)
        ]
    }


def completion_logprobs(pieces: Sequence[tuple[str, Sequence[float]]], start_chars: int = 0) -> dict[str, Any]:
    tokens = _tokens(pieces)
    offsets = [start_chars]
    for token, _ in tokens:
        offsets.append(offsets[-1] + len(token))
    return {
        "tokens": [token for token, _ in tokens],
        "token_logprobs": [logprob for _, logprob in tokens],
        "top_logprobs": None,
        "text_offset": offsets[:-1],
    }


def _tokens(pieces: Sequence[tuple[str, Sequence[float]]]) -> list[tuple[str, float]]:
    out = []
    for text, logprobs in pieces:
        out += [("", logprob) for logprob in logprobs[:-1]]
        out += [(text, logprob) for logprob in logprobs[-1:]]
    return out
