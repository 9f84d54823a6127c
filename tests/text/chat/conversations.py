"""One conversation of three turns for all formats: system, a tool loop with two calls, an answer, a new question."""

from __future__ import annotations

from typing import Any

from seekserve_backend.text.chat.conversation import Message, parse_messages

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
WEATHER_JSON = (
    '{"name": "weather", "description": "Weather of a city", "parameters": {"type": "object", '
    '"properties": {"city": {"type": "string"}}, "required": ["city"]}}'
)


def call(number: int, arguments: str) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": "weather", "arguments": arguments}}


def plain_turns() -> list[Message]:
    return parse_messages(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello", "reasoning_content": "greet"},
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": "4", "reasoning_content": "sum"},
            {"role": "user", "content": "Bye"},
        ]
    )


def tool_turns(*, asks_again: bool = True) -> list[Message]:
    """The results come in the wrong order; the second message of the loop carries reasoning."""
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rome and Oslo?"},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "two calls",
            "tool_calls": [call(1, '{"city": "Rome"}'), call(2, '{"city": "Oslo", "days": 2}')],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "snow"},
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    ]
    answered = [
        {"role": "assistant", "content": "Sun, snow.", "reasoning_content": "compare"},
        {"role": "user", "content": "Thanks"},
    ]
    return parse_messages(turns + answered * asks_again)
