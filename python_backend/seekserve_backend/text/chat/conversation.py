"""Chat messages as they arrive (JSON, OpenAI form) to checked messages of one shape.

Every message has `role` and `content` (a text; None only on an assistant message that calls tools instead). An
assistant message may have `reasoning_content` and `tool_calls`, whose `arguments` are always text; a tool message may
have `tool_call_id`. Other keys are handed on to the template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import ChatError

__all__ = ["ROLES", "Message", "in_call_order", "parse_messages"]

ROLES = ("system", "user", "assistant", "tool", "developer")

Message = dict[str, Any]


def parse_messages(data: Any) -> list[Message]:
    """`data`: the decoded JSON. Raises ChatError for the first message that is not right."""
    if not isinstance(data, list) or not data:
        raise ChatError("messages", "expected a list of at least one message")
    messages = [_message(number, message) for number, message in enumerate(data)]
    calls: Sequence[Mapping[str, Any]] = ()
    start = 0
    while start < len(messages):
        end = start
        while end < len(messages) and messages[end]["role"] == "tool":
            end += 1
        # Most formats tell the results apart by their order alone.
        messages[start:end] = in_call_order(messages[start:end], calls)
        if end == start:
            calls = messages[start].get("tool_calls", ())
            end += 1
        start = end
    return messages


def in_call_order(results: Sequence[Message], calls: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Tool results in the order of the calls that they answer; those without a known id stay where they are."""
    order = {call["id"]: n for n, call in enumerate(calls) if "id" in call}
    places = [n for n, result in enumerate(results) if result.get("tool_call_id") in order]
    known = sorted((results[n] for n in places), key=lambda result: order[result["tool_call_id"]])
    out = list(results)
    for n, result in zip(places, known, strict=True):
        out[n] = result
    return out


def _message(number: int, message: Any) -> Message:
    if not isinstance(message, dict):
        raise _wrong(number, "is not an object")
    role = message.get("role")
    if role not in ROLES:
        raise ChatError("messages", f"message {number}: role {role!r} is not one of {', '.join(ROLES)}")
    out = {key: value for key, value in message.items() if value is not None}
    out.pop("tool_calls", None)
    calls = _calls(number, role, message.get("tool_calls"))
    if calls:
        out["tool_calls"] = calls
    out["content"] = _content(number, message.get("content"), may_be_absent=role == "assistant")
    if calls and not out["content"]:
        out["content"] = None  # the templates tell the two apart by it
    _take_reasoning(number, role, out)
    if not isinstance(out.get("tool_call_id", ""), str):
        raise _wrong(number, "tool_call_id must be a string", ":")
    return out


def _content(number: int, content: Any, *, may_be_absent: bool) -> str:
    if content is None and may_be_absent:
        return ""
    if isinstance(content, list):
        return "\n".join(_part(number, part) for part in content)
    if not isinstance(content, str):
        raise _wrong(number, "content must be a string, or a list of text parts", ":")
    return content


def _part(number: int, part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        kind = repr(part.get("type")) if isinstance(part, dict) else type(part).__name__
        raise _wrong(number, f"content part {kind} is not supported; only text parts are", ":")
    text: str = part["text"]
    return text


def _take_reasoning(number: int, role: str, message: Message) -> None:
    """`reasoning` is another name for `reasoning_content`; both mean something on assistant messages only."""
    given = [message.pop(name) for name in ("reasoning_content", "reasoning") if name in message]
    if role != "assistant" or not given:
        return
    if not isinstance(given[0], str):
        raise _wrong(number, "reasoning_content must be a string", ":")
    message["reasoning_content"] = given[0]


def _calls(number: int, role: str, calls: Any) -> list[dict[str, Any]]:
    if calls is None or calls == []:
        return []
    if role != "assistant":
        raise _wrong(number, "only an assistant message has tool_calls", ":")
    if not isinstance(calls, list):
        raise _wrong(number, "tool_calls must be a list", ":")
    return [_call(number, n, call) for n, call in enumerate(calls)]


def _call(number: int, n: int, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(call, dict) or call.get("type", "function") != "function":
        raise _wrong(number, f"tool_calls[{n}] is not a function call", ":")
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise _wrong(number, f"tool_calls[{n}] needs function.name", ":")
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        raise _wrong(number, f"tool_calls[{n}].function.arguments must be JSON text", ":")
    kept = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**kept, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}


def _wrong(number: int, what: str, colon: str = "") -> ChatError:
    return ChatError("messages", f"message {number}{colon} {what}")
