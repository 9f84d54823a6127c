"""Goldens of the formats without a template, as the facts on chat formats give them (section 4), turn by turn."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.text.chat.conversations import WEATHER, WEATHER_JSON, plain_turns, tool_turns

from seekserve_backend.text.chat.conversation import Message, parse_messages
from seekserve_backend.text.chat.errors import ChatError
from seekserve_backend.text.chat.formats import BuiltInFormat, built_in_format
from seekserve_backend.text.chat.options import ChatOptions

B, E = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
U, A, S = "<｜User｜>", "<｜Assistant｜>", "<｜System｜>"
T, N = "<think>", "</think>"
V32, V4, V41 = "deepseek_v3_2", "deepseek_v4", "deepseek_v4_1"
TOOLS = f"TOOLS {WEATHER_JSON}"
EFFORT = "Reasoning Effort: {} (range 1-100, a higher number asks for more thorough reasoning)\n\n"


def chat_format(family: str) -> BuiltInFormat:
    found = built_in_format(family)
    assert found is not None
    # The sentences around the tools are tested on their own; here one stands for them.
    return dataclasses.replace(
        found, wording=dataclasses.replace(found.wording, tools="TOOLS {tool_schemas}", schema="SCHEMA {schema}")
    )


def render(family: str, messages: list[Message], **options: Any) -> str:
    return chat_format(family).render(messages, ChatOptions(**options), lambda text: text)


def dsml(block: str, blank: str = "") -> str:
    """The two calls of `tool_turns`, with the blank line before them."""
    tag = f"｜DSML｜{blank}"
    parameter = f'<{tag}parameter name="{{}}" string="{{}}">{{}}</{tag}parameter>'
    rome = parameter.format("city", "true", "Rome")
    oslo = f"{parameter.format('city', 'true', 'Oslo')}\n{parameter.format('days', 'false', '2')}"
    invokes = "\n".join(f'<{tag}invoke name="weather">\n{lines}\n</{tag}invoke>' for lines in (rome, oslo))
    return f"\n\n<｜DSML｜{block}>\n{invokes}\n</｜DSML｜{block}>"


FUNCTION_RESULTS = "\n\n<function_results>\n<result>sun</result>\n<result>snow</result>\n</function_results>\n\n"
TOOL_RESULTS = "<tool_result>sun</tool_result>\n\n<tool_result>snow</tool_result>"


@pytest.mark.parametrize(
    ("family", "options", "prompt"),
    [
        (V32, {"thinking": True}, f"{B}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{T}"),
        (V32, {}, f"{B}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{N}"),
        (V4, {"thinking": True}, f"{B}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{T}"),
        (V4, {"thinking": False}, f"{B}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{N}"),
        # with tools the reasoning of all turns stays
        (
            V4,
            {"thinking": True, "tools": (WEATHER,)},
            f"{B}Be brief.\n\n{TOOLS}{U}Hi{A}{T}greet{N}Hello{E}{U}2+2?{A}{T}sum{N}4{E}{U}Bye{A}{T}",
        ),
        (
            V41,
            {"thinking": True},
            f"{B}{S}{EFFORT.format(50)}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{T}",
        ),
        (V41, {}, f"{B}{S}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{N}"),
        (
            V32,
            {"schema": {"type": "object"}},
            f'{B}Be brief.\n\nSCHEMA {{"type": "object"}}{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{N}',
        ),
    ],
)  # fmt: skip
def test_three_turns(family: str, options: dict[str, Any], prompt: str) -> None:
    assert render(family, plain_turns(), **options) == prompt


@pytest.mark.parametrize(
    ("family", "thinking", "loop", "answered"),
    [
        # The reasoning of a running loop is kept, and left out once the user has spoken again.
        (
            V32,
            True,
            f"{A}{T}two calls{N}Looking.{dsml('function_calls')}{E}{FUNCTION_RESULTS}{T}",
            f"{A}{N}Looking.{dsml('function_calls')}{E}{FUNCTION_RESULTS}{N}Sun, snow.{E}{U}Thanks{A}{T}",
        ),
        (
            V32,
            False,
            f"{A}{N}Looking.{dsml('function_calls')}{E}{FUNCTION_RESULTS}{N}",
            f"{A}{N}Looking.{dsml('function_calls')}{E}{FUNCTION_RESULTS}{N}Sun, snow.{E}{U}Thanks{A}{N}",
        ),
        (
            V4,
            True,
            f"{A}{T}two calls{N}Looking.{dsml('tool_calls')}{E}{U}{TOOL_RESULTS}{A}{T}",
            (
                f"{A}{T}two calls{N}Looking.{dsml('tool_calls')}{E}{U}{TOOL_RESULTS}{A}{T}compare{N}Sun, snow.{E}"
                f"{U}Thanks{A}{T}"
            ),
        ),
        (
            V41,
            False,
            f"{A}{N}Looking.{dsml(' calls', ' ')}{E}{U}{TOOL_RESULTS}{A}{N}",
            f"{A}{N}Looking.{dsml(' calls', ' ')}{E}{U}{TOOL_RESULTS}{A}{N}Sun, snow.{E}{U}Thanks{A}{N}",
        ),
    ],
)
def test_a_tool_loop(family: str, thinking: bool, loop: str, answered: str) -> None:
    system = S if family == V41 else ""
    head = f"{B}{system}Be brief.\n\nTOOLS {WEATHER_JSON}{U}Rome and Oslo?"
    options: dict[str, Any] = {"thinking": thinking, "tools": (WEATHER,)}
    assert render(family, tool_turns(asks_again=False), **options) == head + loop
    assert render(family, tool_turns(), **options) == head + answered


def test_a_tool_list_brings_its_own_system_message() -> None:
    hi = parse_messages([{"role": "user", "content": "Hi"}])
    assert render(V32, hi, tools=(WEATHER,)) == f"{B}\n\nTOOLS {WEATHER_JSON}{U}Hi{A}{N}"
    assert render(V41, hi, tools=(WEATHER,)) == f"{B}{S}\n\nTOOLS {WEATHER_JSON}{U}Hi{A}{N}"


@pytest.mark.parametrize(
    ("family", "effort", "start"),
    [
        (V41, None, f"{B}{S}{EFFORT.format(50)}{U}Hi"),
        (V41, "low", f"{B}{S}{EFFORT.format(25)}{U}Hi"),
        (V41, "xhigh", f"{B}{S}{EFFORT.format(75)}{U}Hi"),
        (V41, 7, f"{B}{S}{EFFORT.format(7)}{U}Hi"),
        (V4, "high", f"{B}{U}Hi"),
        (V4, "max", f"{B}Reasoning Effort: "),
    ],
)
def test_effort_stands_at_the_start(family: str, effort: str | int | None, start: str) -> None:
    hi = parse_messages([{"role": "user", "content": "Hi"}])
    assert render(family, hi, thinking=True, reasoning_effort=effort).startswith(start)
    if effort is not None:
        assert render(family, hi, reasoning_effort=effort).startswith(start), "an effort asks for thinking"


def test_a_system_message_in_the_middle() -> None:
    turns = parse_messages([{"role": "user", "content": "Hi"}, {"role": "developer", "content": "Now in French."}])
    assert render(V41, turns) == f"{B}{U}Hi{S}Now in French.{A}{N}"
    with pytest.raises(ChatError, match="nothing to answer"):
        render(V4, turns)


def test_reasoning_inside_the_content_is_taken_apart() -> None:
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>greet</think>Hello"},
        {"role": "user", "content": "Bye"},
    ]
    assert render(V4, parse_messages(turns)) == f"{B}{U}Hi{A}{N}Hello{E}{U}Bye{A}{N}"
    kept = render(V4, parse_messages(turns), thinking=True, tools=(WEATHER,))
    assert f"{U}Hi{A}{T}greet{N}Hello{E}" in kept


@pytest.mark.parametrize(
    ("family", "messages", "options", "field", "words"),
    [
        (V32, [("user", "x"), ("assistant", "y")], {}, "messages", "nothing to answer"),
        (V4, [("user", "x"), ("assistant", "y")], {}, "messages", "nothing to answer"),
        (V32, [("system", "x")], {}, "messages", "nothing to answer"),
        (V32, [("user", "x"), ("tool", "y")], {}, "messages", "1 tool result for 0 tool calls"),
        (V32, [("user", "x")], {"reasoning_effort": "max"}, "reasoning_effort", "DeepSeek-V3.2 has none"),
        (V4, [("user", "x")], {"reasoning_effort": "medium"}, "reasoning_effort", "high, max, not 'medium'"),
        (V4, [("user", "x")], {"reasoning_effort": 50}, "reasoning_effort", "not 50"),
        (V41, [("user", "x")], {"reasoning_effort": 101}, "reasoning_effort", "from 1 to 100"),
        (V4, [("user", "x")], {"reasoning_effort": "max", "thinking": False}, "reasoning_effort", "together"),
        (V4, [("user", "x")], {"template_kwargs": {"style": 1}}, "chat_template_kwargs", "'style' is unknown"),
    ],
)
def test_what_a_format_cannot_say(
    family: str, messages: list[tuple[str, str]], options: dict[str, Any], field: str, words: str
) -> None:
    turns = parse_messages([{"role": role, "content": content} for role, content in messages])
    with pytest.raises(ChatError) as caught:
        render(family, turns, **options)
    assert caught.value.field == field
    assert words in caught.value.reason


def test_calls_need_an_object_of_arguments_and_a_result_each() -> None:
    turns = tool_turns(asks_again=False)
    with pytest.raises(ChatError, match="1 tool result for 2 tool calls"):
        render(V32, turns[:-1])
    turns[2]["tool_calls"][0]["function"]["arguments"] = "[1]"
    for family in (V32, V4, V41):
        with pytest.raises(ChatError, match="message 2: the arguments of 'weather' are not a JSON object"):
            render(family, turns)


def test_families_are_matched_exactly() -> None:
    assert built_in_format("deepseek_v4_flash") is built_in_format("deepseek_v4_pro") is built_in_format("deepseek_v4")
    assert [built_in_format(name) for name in (None, "", "deepseek_v3", "deepseek_r1", "deepseek_v5")] == [None] * 5


def test_the_wording_tells_the_wire_format() -> None:
    for family, block, blank in ((V32, "function_calls", ""), (V4, "tool_calls", ""), (V41, " calls", " ")):
        found = built_in_format(family)
        assert found is not None
        prompt = found.render(plain_turns(), ChatOptions(tools=(WEATHER,)), lambda text: text)
        tag = f"｜DSML｜{blank}"
        assert f'<｜DSML｜{block}>\n<{tag}invoke name="$TOOL_NAME">\n<{tag}parameter name="$PARAMETER_NAME"' in prompt
        assert f"</{tag}invoke>\n</｜DSML｜{block}>" in prompt
        assert WEATHER_JSON in prompt
        assert prompt.startswith(f"{B}{S if family == V41 else ''}Be brief.\n\n## Tools\n")


def test_the_release_s_own_sentences_take_the_place_of_ours() -> None:
    found = built_in_format(V4)
    assert found is not None
    own = found.with_texts({"tools": "T {dsml_token} {tool_schemas}", "effort_max": "MAX "})
    prompt = own.render(plain_turns(), ChatOptions(tools=(WEATHER,), reasoning_effort="max"), lambda text: text)
    assert prompt.startswith(f"{B}MAX Be brief.\n\nT ｜DSML｜ {WEATHER_JSON}{U}Hi")
    for texts in ({"other": "x"}, {"tools": "{tools.__class__}"}, {"tools": "{"}, {"schema": "{schema[0]}"}):
        with pytest.raises(ValueError, match=r"tools|schema"):
            found.with_texts(texts)


def test_a_look_alike_of_a_token_is_shown_by_its_code_points() -> None:
    """Group I1: the ASCII spelling is another token, or none."""
    found = built_in_format(V4)
    assert found is not None
    assert found.missing_tokens([B, E, U, A, T, N]) is None
    text = found.missing_tokens(["<|begin_of_sentence|>", E, U, A, T, N])
    assert text is not None
    assert "'<｜begin▁of▁sentence｜>' (U+003C U+FF5C U+2581 U+003E)" in text
    assert text.endswith("but '<|begin_of_sentence|>' (U+003C U+007C U+005F U+003E)")
    assert "does not have" in (found.missing_tokens([]) or "")
