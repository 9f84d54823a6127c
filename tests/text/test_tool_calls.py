"""Every dialect of DeepSeek's tool calls (facts: chat formats, section 4), whole, cut up, cut off and malformed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from tests.text.streams import chunks_of

from seekserve_backend.text.tool_calls import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Event,
    ToolCallParser,
)

Calls = list[tuple[str, str, bool | None]]

CALLS, END_CALLS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, END_CALL, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


def v3(name: str, arguments: str) -> str:
    return f"{CALL}function{SEP}{name}\n```json\n{arguments}\n```{END_CALL}"


def v31(name: str, arguments: str) -> str:
    return f"{CALL}{name}{SEP}{arguments}{END_CALL}"


def dsml(block: str, *inner: str) -> str:
    return f"<｜DSML｜{block}>\n" + "\n".join(inner) + f"\n</｜DSML｜{block}>"


def parameter(key: str, is_text: str, value: str, *, blank: str = "") -> str:
    return f'<｜DSML｜{blank}parameter name="{key}" string="{is_text}">{value}</｜DSML｜{blank}parameter>'


def invoke(name: str, *parameters: tuple[str, str, str], blank: str = "") -> str:
    lines = [parameter(*each, blank=blank) for each in parameters]
    return "\n".join([f'<｜DSML｜{blank}invoke name="{name}">', *lines, f"</｜DSML｜{blank}invoke>"])


def run(chunks: list[str]) -> tuple[str, Calls, bool]:
    """Joined content, the calls as (name, arguments, is_whole), and the flag."""
    parser = ToolCallParser()
    events: list[Event] = [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()
    content, calls = "", Calls()
    for event in events:
        if isinstance(event, Content):
            assert event.text
            content += event.text
        elif isinstance(event, CallStart):
            assert event.index == len(calls)
            calls.append((event.name, "", None))
        elif isinstance(event, CallArguments):
            assert event.index == len(calls) - 1
            assert calls[-1][2] is None, "arguments after the end"
            calls[-1] = (calls[-1][0], calls[-1][1] + event.text, None)
        else:
            assert isinstance(event, CallEnd)
            assert calls[event.index][2] is None, "one end for each call"
            calls[-1] = (*calls[-1][:2], event.is_whole)
    assert all(is_whole is not None for _, _, is_whole in calls)
    assert parser.calls == len(calls)
    return content, calls, parser.is_malformed


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("just text", "just text", []),
        (f"Let me see.{CALLS}{v3('f', '{}')}{END_CALLS}", "Let me see.", [("f", "{}", True)]),
        (
            f'{CALLS}{v3("f", json.dumps({"a": "`x`"}))}\n{v3("g", "{}")}{END_CALLS}\n',
            "",
            [("f", '{"a": "`x`"}', True), ("g", "{}", True)],
        ),
        (f'T{CALLS}{v31("f", "[1]")}{v31("g", "{}")}{END_CALLS}', "T", [("f", "[1]", True), ("g", "{}", True)]),
        (f'{CALLS}{v31("function", json.dumps({"x": 1}))}{END_CALLS}', "", [("function", '{"x": 1}', True)]),
        (f"{CALLS}{CALL}f{SEP}{END_CALL}{END_CALLS}", "", [("f", "{}", True)]),  # no arguments at all
        (v31("f", "{}") + " and", " and", [("f", "{}", True)]),  # without the outer pair
        (
            "hm\n\n" + dsml("function_calls", invoke("f", ("x", "true", 'a"b\n<'), ("y", "false", "[1, 2]"))),
            "hm",
            [("f", '{"x": "a\\"b\\n<", "y": [1, 2]}', True)],
        ),
        (
            "\n\n" + dsml("tool_calls", invoke("f"), invoke("g", ("k", "false", "null"))) + "\n",
            "",
            [("f", "{}", True), ("g", '{"k": null}', True)],
        ),
        (
            dsml(" calls", invoke("f", ("x", "true", ""), blank=" ")) + " bye",
            " bye",
            [("f", '{"x": ""}', True)],
        ),
        # said to be JSON, and is not: passed on as a text, so that the whole stays JSON
        (dsml("tool_calls", invoke("f", ("x", "false", "NaN"))), "", [("f", '{"x": "NaN"}', True)]),
        ("a\n\n\n" + dsml("tool_calls", invoke("f")), "a\n", [("f", "{}", True)]),
        (
            dsml("tool_calls", invoke("f")) + "\n\n" + dsml("tool_calls", invoke("g")),
            "",
            [("f", "{}", True), ("g", "{}", True)],
        ),
    ],
)  # fmt: skip
def test_calls_are_read_in_every_dialect(text: str, content: str, calls: Calls) -> None:
    assert run([text]) == (content, calls, False)
    assert run(list(text)) == (content, calls, False)
    for _, arguments, _ in calls:
        json.loads(arguments)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        # cut off by the token limit
        (f"a{CALLS}", f"a{CALLS}", []),
        (f"{CALLS}{CALL}func", f"{CALLS}{CALL}func", []),
        (f"{CALLS}{CALL}f{SEP}{{", "", [("f", "{", False)]),
        (f"{CALLS}{v31('f', '{}')}{CALL}g", f"{CALL}g", [("f", "{}", True)]),
        ("\n\n<｜DSML｜tool_calls>\n<｜DSML｜inv", "\n\n<｜DSML｜tool_calls>\n<｜DSML｜inv", []),
        (
            '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="x" string="true">ab</｜DS',
            "</｜DS",
            [("f", '{"x": "ab', False)],
        ),
        # malformed
        (f"{CALLS}nonsense", f"{CALLS}nonsense", []),
        (f"{CALLS}{END_CALLS}", f"{CALLS}{END_CALLS}", []),
        (f"{CALLS}{CALL}no separator{END_CALL}x", f"{CALLS}{CALL}no separator{END_CALL}x", []),
        (f"{CALLS}{CALL}{SEP}{{}}{END_CALL}", f"{CALLS}{CALL}{SEP}{{}}{END_CALL}", []),
        (f"{CALLS}{CALL}f{SEP}{{}}{END_CALLS}", END_CALLS, [("f", "{}", False)]),
        ("<｜DSML｜tool_calls>text", "<｜DSML｜tool_calls>text", []),
        (dsml("tool_calls", "<｜DSML｜invoke nome='f'>"), dsml("tool_calls", "<｜DSML｜invoke nome='f'>"), []),
        (
            dsml("tool_calls", '<｜DSML｜invoke name="f">', "stray", "</｜DSML｜invoke>"),
            "\nstray\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
            [("f", "{", False)],
        ),
        (
            dsml("tool_calls", invoke("f", ("x", "true", "1"), ("x", "true", "2"))),
            "\n".join(["", parameter("x", "true", "2"), "</｜DSML｜invoke>", "</｜DSML｜tool_calls>"]),
            [("f", '{"x": "1"', False)],
        ),
    ],
)
def test_what_is_no_whole_call_is_content_and_flagged(text: str, content: str, calls: Calls) -> None:
    assert run([text]) == (content, calls, True)
    assert run(list(text)) == (content, calls, True)


def test_arguments_stream_while_they_come() -> None:
    parser = ToolCallParser()
    assert parser.feed(f'{CALLS}{CALL}f{SEP}{{"city": "Par')[-1] == CallArguments(0, '{"city": "Par')
    assert parser.feed("is") == [CallArguments(0, "is")]


def test_a_lone_bracket_or_newline_waits_for_the_next_character_only() -> None:
    parser = ToolCallParser()
    assert parser.feed("a\n\n<") == [Content("a")]
    assert parser.feed("b") == [Content("\n\n<b")]


_PARTS = [
    *(CALLS, END_CALLS, CALL, END_CALL, SEP, "function", "f", "\n", "```json\n", "\n```", "{}", " "),
    *('<｜DSML｜tool_calls>', '</｜DSML｜tool_calls>', '<｜DSML｜invoke name="g">', "</｜DSML｜invoke>"),
    *('<｜DSML｜parameter name="x" string="true">', '<｜DSML｜parameter name="y" string="false">'),
    "</｜DSML｜parameter>",
    *("<", "｜", v3("f", '{"a": 1}'), v31("g", "{}"), dsml("tool_calls", invoke("h", ("x", "false", "1")))),
]  # fmt: skip


@given(case=chunks_of(_PARTS))
@settings(max_examples=400)
def test_the_cut_never_changes_the_result(case: tuple[str, list[str]]) -> None:
    text, chunks = case
    assert run(chunks) == run([text])
