"""The releases that ship a template: goldens of three turns, and what each template can and cannot be asked for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.prompts.templates import R1, V3, V3_TOOLS, V31
from tests.text.chat.conversations import WEATHER, plain_turns, tool_turns

from seekserve_backend.chat_template import ChatTemplate
from seekserve_backend.text.chat.conversation import parse_messages
from seekserve_backend.text.chat.errors import ChatError
from seekserve_backend.text.chat.options import ChatOptions

B, E = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
U, A = "<｜User｜>", "<｜Assistant｜>"
T, N = "<think>", "</think>"
CALL, END, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
CALLS, END_CALLS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
OUT, END_OUT = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
OUTS, END_OUTS = "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"
ROME, OSLO = '{"city": "Rome"}', '{"city": "Oslo", "days": 2}'


def render(text: str, messages: list[dict[str, Any]], **options: Any) -> str:
    template = ChatTemplate(text, bos=B, eos=E)
    return template.render(messages, ChatOptions(**options), lambda text, _role, _field: text)


def thought(content: str) -> list[dict[str, Any]]:
    return parse_messages(
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": "Bye"},
        ]
    )


@pytest.mark.parametrize(
    ("template", "options", "prompt"),
    [
        (V3, {}, f"{B}Be brief.{U}Hi{A}Hello{E}{U}2+2?{A}4{E}{U}Bye{A}"),
        (R1, {}, f"{B}Be brief.{U}Hi{A}Hello{E}{U}2+2?{A}4{E}{U}Bye{A}{T}\n"),
        (R1, {"thinking": True}, f"{B}Be brief.{U}Hi{A}Hello{E}{U}2+2?{A}4{E}{U}Bye{A}{T}\n"),
        (V31, {}, f"{B}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{N}"),
        (V31, {"thinking": True}, f"{B}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{T}"),
        (V31, {"thinking": False}, f"{B}Be brief.{U}Hi{A}{N}Hello{E}{U}2+2?{A}{N}4{E}{U}Bye{A}{N}"),
    ],
)
def test_three_turns(template: str, options: dict[str, Any], prompt: str) -> None:
    assert render(template, plain_turns(), **options) == prompt


def test_old_reasoning_is_left_out_of_the_history() -> None:
    """Group I7: a client that feeds the answer back as it came."""
    assert render(R1, thought(f"{T}greet{N}Hello")) == f"{B}{U}Hi{A}Hello{E}{U}Bye{A}{T}\n"
    assert render(V31, thought(f"{T}greet{N}Hello")) == f"{B}{U}Hi{A}{N}Hello{E}{U}Bye{A}{N}"


def test_a_tool_loop() -> None:
    both = [f"{CALL}function{SEP}weather\n```json\n{arguments}\n```{END}" for arguments in (ROME, OSLO)]
    v3_calls = f"{CALLS}{both[0]}\n{both[1]}{END_CALLS}{E}"
    v3_results = f"{OUTS}{OUT}sun{END_OUT}\n{OUT}snow{END_OUT}{END_OUTS}"
    start = f"{B}Be brief.{U}Rome and Oslo?{A}Looking."
    assert render(V3, tool_turns(asks_again=False)) == start + v3_calls + v3_results
    assert render(V3, tool_turns()) == f"{start}{v3_calls}{v3_results}Sun, snow.{E}{U}Thanks{A}"
    v31_calls = f"{CALLS}{CALL}weather{SEP}{ROME}{END}{CALL}weather{SEP}{OSLO}{END}{END_CALLS}{E}"
    v31_results = f"{OUT}sun{END_OUT}{OUT}snow{END_OUT}"
    start = f"{B}Be brief.{U}Rome and Oslo?{A}{N}Looking."
    assert render(V31, tool_turns()) == f"{start}{v31_calls}{v31_results}Sun, snow.{E}{U}Thanks{A}{N}"


def test_a_tool_list_is_written_as_json_without_escapes() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "<b> ü"}}
    hi = parse_messages([{"role": "user", "content": "Hi"}])
    assert f'## Tools\n{{"type": "function", "function": {{"name": "f", "description": "<b> ü"}}}}{U}Hi' in render(
        V3_TOOLS, hi, tools=(tool,)
    )


def test_arguments_are_handed_over_as_the_template_wants_them() -> None:
    decoded = (
        "{%- for m in messages -%}{%- for c in m.tool_calls or [] -%}{{ c.function.arguments | tojson }}"
        "{%- endfor -%}{%- endfor -%}{#- 'tool' -#}"
    )
    assert render(decoded, tool_turns()) == ROME + OSLO


def test_only_templates_that_ask_for_none_get_it() -> None:
    turns = parse_messages([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}])
    known = "{%- for m in messages -%}{{ m.content is none }}{{ m.tool_calls | length }}{%- endfor -%}"
    assert render(known, turns) == "True1"
    assert render("{%- for m in messages -%}{{ m.content + '|' }}{{ m.tool_calls[0].id }}{%- endfor -%}", turns) == "|"


DEAF = "{{ messages[0]['content'] }}"


@pytest.mark.parametrize(
    ("template", "options", "field", "words"),
    [
        (V3, {"tools": (WEATHER,)}, "tools", "knows no tools"),
        (R1, {"tools": (WEATHER,)}, "tools", "knows no tools"),
        (V3, {"thinking": True}, "thinking", "does not think"),
        (R1, {"thinking": False}, "thinking", "always thinks"),
        (V3, {"reasoning_effort": "max"}, "reasoning_effort", "has none"),
        (V3, {"schema": {"type": "object"}}, "response_format", "no place for a schema"),
        (V3, {"template_kwargs": {"style": 1}}, "chat_template_kwargs", "does not read 'style'; it reads none"),
        (V31, {"template_kwargs": {"thinkin": 1}}, "chat_template_kwargs", "it reads thinking; did you mean thinking?"),
        (V31, {"template_kwargs": {"messages": []}}, "chat_template_kwargs", "does not read 'messages'"),
        ("{{ raise_exception('only users') }}", {}, "messages", "refused the conversation: only users"),
        ("{{ messages[0]['content'] + 1 }}", {}, "messages", "refused the conversation"),
        ("{{ messages[0].__class__.__mro__ }}", {}, "messages", "refused the conversation"),
    ],
)
def test_what_a_template_cannot_do(template: str, options: dict[str, Any], field: str, words: str) -> None:
    """Groups H6, H7 and J2: an error that names it, never left out in silence, and never out of the sandbox."""
    with pytest.raises(ChatError) as caught:
        render(template, plain_turns(), **options)
    assert caught.value.field == field
    assert words in caught.value.reason


def test_thinking_off_is_fine_for_a_model_that_does_not_think() -> None:
    assert render(V3, plain_turns(), thinking=False) == render(V3, plain_turns())


def test_variables_of_its_own_are_passed_on() -> None:
    text = "{{ messages[0]['content'] + tone }}{% if enable_thinking %}!{% endif %}"
    hi = parse_messages([{"role": "user", "content": "Hi"}])
    assert render(text, hi, template_kwargs={"tone": "?"}, thinking=True) == "Hi?!"


def test_tool_messages_for_a_template_that_would_drop_them() -> None:
    with pytest.raises(ChatError, match="message 2: its chat template knows no tool_calls"):
        render(DEAF, tool_turns())
    with pytest.raises(ChatError, match="message 1: its chat template knows no role tool"):
        render(DEAF, parse_messages([{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]))


def test_a_developer_message_is_a_system_message() -> None:
    turns = parse_messages([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert render(V3, turns) == f"{B}Be brief.{U}Hi{A}"
