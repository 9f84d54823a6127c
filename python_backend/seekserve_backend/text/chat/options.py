"""How a conversation is to be rendered: the `chat_options` input, checked. What a format has of it, the format says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import ChatError

__all__ = ["ChatOptions", "parse_options"]

_KEYS = ("tools", "tool_choice", "thinking", "reasoning_effort", "response_format", "chat_template_kwargs")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_THINKING_NAMES = ("thinking", "enable_thinking")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    tools: tuple[Mapping[str, Any], ...] = ()
    """In the OpenAI form; empty also when `tool_choice` is none."""
    thinking: bool | None = None
    """None: the format's default."""
    reasoning_effort: str | int | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema that the answer shall follow, to be written into the prompt."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further variables for the checkpoint's own template."""


def parse_options(data: Any) -> ChatOptions:
    """`data`: the decoded JSON. Raises ChatError naming the option."""
    if not isinstance(data, dict):
        raise ChatError("chat_options", "expected an object")
    unknown = sorted(set(data) - set(_KEYS))
    if unknown:
        raise ChatError("chat_options", f"{unknown[0]!r} is not one of {', '.join(_KEYS)}")
    given = {key: value for key, value in data.items() if value is not None}
    kwargs = given.get("chat_template_kwargs", {})
    if not isinstance(kwargs, dict):
        raise ChatError("chat_template_kwargs", "expected an object")
    kwargs = dict(kwargs)
    tools = _tools(given.get("tools", []))
    return ChatOptions(
        tools=tools if _wants_tools(given.get("tool_choice")) else (),
        thinking=_thinking(given.get("thinking"), kwargs),
        reasoning_effort=_effort(given.get("reasoning_effort"), kwargs),
        schema=_schema(given.get("response_format")),
        template_kwargs=kwargs,
    )


def _tools(tools: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(tools, list):
        raise ChatError("tools", "expected a list")
    names = [_tool_name(n, tool) for n, tool in enumerate(tools)]
    twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if twice is not None:
        raise ChatError("tools", f"two functions are called {twice!r}")
    return tuple(tools)


def _tool_name(n: int, tool: Any) -> str:
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
        raise ChatError("tools", f'tools[{n}] is not {{"type": "function", "function": {{...}}}}')
    function = tool["function"]
    name = function.get("name")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise ChatError("tools", f"tools[{n}].function.name must be 1 to 64 of letters, digits, `_`, `-` and `.`")
    if not isinstance(function.get("parameters") or {}, dict):
        raise ChatError("tools", f"tools[{n}].function.parameters must be a JSON schema object")
    if not isinstance(function.get("description") or "", str):
        raise ChatError("tools", f"tools[{n}].function.description must be a string")
    return name


def _wants_tools(choice: Any) -> bool:
    if choice in (None, "auto", "none"):
        return bool(choice != "none")
    raise ChatError(
        "tool_choice", f"{choice!r} would need the output to be constrained, which is not supported; send auto or none"
    )


def _thinking(given: Any, kwargs: dict[str, Any]) -> bool | None:
    wishes = {"thinking": given} if given is not None else {}
    for name in _THINKING_NAMES:
        if kwargs.get(name) is not None:
            wishes[f"chat_template_kwargs.{name}"] = kwargs[name]
        kwargs.pop(name, None)
    for name, value in wishes.items():
        if not isinstance(value, bool):
            raise ChatError(name.partition(".")[0], f"{name} must be true or false, got {value!r}")
    if len(set(wishes.values())) > 1:
        raise ChatError("thinking", f"{' and '.join(wishes)} contradict each other")
    return next(iter(wishes.values()), None)


def _effort(given: Any, kwargs: dict[str, Any]) -> str | int | None:
    other = kwargs.pop("reasoning_effort", None)
    if given is not None and other is not None and given != other:
        raise ChatError("reasoning_effort", f"{given!r} contradicts chat_template_kwargs.reasoning_effort {other!r}")
    effort = other if given is None else given
    if effort is not None and (isinstance(effort, bool) or not isinstance(effort, (str, int))):
        raise ChatError("reasoning_effort", f"expected a word or a whole number, got {effort!r}")
    return effort


def _schema(response_format: Any) -> Mapping[str, Any] | None:
    if response_format is None:
        return None
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind == "text":
        return None
    if kind != "json_schema":
        raise ChatError("response_format", f"type {kind!r} cannot be asked for by a prompt; text and json_schema can")
    inner = response_format.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if not isinstance(schema, dict):
        raise ChatError("response_format", "json_schema.schema must be an object")
    return schema
