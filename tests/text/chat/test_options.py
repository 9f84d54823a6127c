from __future__ import annotations

from typing import Any

import pytest
from tests.text.chat.conversations import WEATHER

from seekserve_backend.text.chat.conversation import parse_messages
from seekserve_backend.text.chat.errors import ChatError
from seekserve_backend.text.chat.options import ChatOptions, parse_options

SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ({}, ChatOptions()),
        ({"tools": None, "thinking": None, "response_format": None}, ChatOptions()),
        ({"tools": [WEATHER], "tool_choice": "auto"}, ChatOptions(tools=(WEATHER,))),
        ({"tools": [WEATHER], "tool_choice": "none"}, ChatOptions()),
        ({"tools": []}, ChatOptions()),
        ({"thinking": False}, ChatOptions(thinking=False)),
        (
            {"chat_template_kwargs": {"enable_thinking": True, "x": 1}},
            ChatOptions(thinking=True, template_kwargs={"x": 1}),
        ),
        ({"thinking": True, "chat_template_kwargs": {"thinking": True}}, ChatOptions(thinking=True)),
        ({"chat_template_kwargs": {"reasoning_effort": "max"}}, ChatOptions(reasoning_effort="max")),
        ({"reasoning_effort": 30}, ChatOptions(reasoning_effort=30)),
        ({"response_format": {"type": "text"}}, ChatOptions()),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
            ChatOptions(schema=SCHEMA),
        ),
    ],
)  # fmt: skip
def test_what_is_asked_for(data: dict[str, Any], options: ChatOptions) -> None:
    assert parse_options(data) == options


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ([], "chat_options", "an object"),
        ({"toolz": []}, "chat_options", "'toolz' is not one of"),
        ({"chat_template": "{{ x }}"}, "chat_options", "'chat_template' is not one of"),  # J2: never of a request
        ({"tools": {}}, "tools", "a list"),
        ({"tools": [{"type": "function"}]}, "tools", "tools[0] is not"),
        ({"tools": [{"type": "code", "function": {"name": "f"}}]}, "tools", "tools[0] is not"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}]}, "tools", "parameters"),
        ({"tools": [WEATHER, WEATHER]}, "tools", "two functions are called 'weather'"),
        ({"tools": [WEATHER], "tool_choice": "required"}, "tool_choice", "'required'"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "auto or none"),
        ({"thinking": "yes"}, "thinking", "true or false"),
        ({"chat_template_kwargs": {"thinking": 1}}, "chat_template_kwargs", "true or false"),
        ({"thinking": True, "chat_template_kwargs": {"enable_thinking": False}}, "thinking", "contradict"),
        ({"reasoning_effort": True}, "reasoning_effort", "a word or a whole number"),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "max"}},
            "reasoning_effort",
            "contra",
        ),
        ({"response_format": "json"}, "response_format", "type None"),
        ({"response_format": {"type": "json_object"}}, "response_format", "'json_object'"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema.schema"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs", "an object"),
    ],
)
def test_what_is_refused(data: Any, field: str, words: str) -> None:
    with pytest.raises(ChatError) as caught:
        parse_options(data)
    assert caught.value.field == field
    assert words in caught.value.reason


def one(**message: Any) -> dict[str, Any]:
    return parse_messages([message])[0]


def test_messages_take_one_shape() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert one(role="user", content=parts) == {"role": "user", "content": "a\nb"}
    assert one(role="assistant", content=None) == {"role": "assistant", "content": ""}
    assert one(role="assistant", content="a", reasoning="r") == {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "r",
    }
    assert one(role="user", content="a", reasoning_content="r") == {"role": "user", "content": "a"}
    call = {"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    for arguments in ('{"x": 1}', {"x": 1}):
        given = {"function": {"name": "f", "arguments": arguments}}
        assert one(role="assistant", content="", tool_calls=[given]) == {
            "role": "assistant",
            "content": None,
            "tool_calls": [call],
        }
    assert one(role="assistant", content="a", tool_calls=[]) == {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user", "content": [{"type": "image_url"}]}, "content part 'image_url' is not supported"),
        ({"role": "user", "content": ["a"]}, "content part str"),
        ({"role": "tool"}, "content must be a string"),
        ({"role": "tool", "content": "x", "tool_call_id": 1}, "tool_call_id"),
        ({"role": "user", "content": "x", "tool_calls": [{}]}, "only an assistant"),
        ({"role": "assistant", "tool_calls": "x"}, "must be a list"),
        ({"role": "assistant", "tool_calls": [{"type": "code"}]}, "tool_calls[0] is not a function call"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "tool_calls[0] needs function.name"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}, "must be JSON text"),
        ({"role": "assistant", "content": "", "reasoning_content": 1}, "reasoning_content must be a string"),
    ],
)
def test_messages_that_are_refused(message: dict[str, Any], words: str) -> None:
    with pytest.raises(ChatError) as caught:
        parse_messages([{"role": "user", "content": "x"}, message])
    assert caught.value.field == "messages"
    assert caught.value.reason.startswith("message 1: ")
    assert words in caught.value.reason
