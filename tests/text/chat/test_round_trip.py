"""What a format writes of an answer, its readers take apart into the same answer: history and stream agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.chat.conversations import WEATHER
from tests.text.streams import cut

from seekserve_backend.text.chat.conversation import parse_messages
from seekserve_backend.text.chat.formats import built_in_format
from seekserve_backend.text.chat.options import ChatOptions
from seekserve_backend.text.chat.tokens import EOS
from seekserve_backend.text.reasoning import PieceKind, ReasoningSplit, ends_in_thinking
from seekserve_backend.text.tool_calls import CallArguments, CallEnd, CallStart, Content, ToolCallParser

_TEXT = st.text(alphabet='ab<>/"\\\n\t {}é你', max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=6,
)
_NAME = st.text(alphabet="abc_-", min_size=1, max_size=8)
_CALLS = st.lists(st.tuples(_NAME, st.dictionaries(_NAME, _VALUES, max_size=3)), max_size=3)
ASKED = {"role": "user", "content": "?"}


def tool_call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": str(number), "function": {"name": name, "arguments": json.dumps(arguments)}}


@pytest.mark.parametrize("family", ["deepseek_v3_2", "deepseek_v4", "deepseek_v4_1"])
@given(reasoning=_TEXT, content=_TEXT, calls=_CALLS, at=st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=120, deadline=None)
def test_an_answer_comes_back_as_it_was(
    family: str, reasoning: str, content: str, calls: list[tuple[str, dict[str, Any]]], at: list[int]
) -> None:
    found = built_in_format(family)
    assert found is not None
    calls = calls or [("f", {})]  # what results follow keeps its reasoning
    answer = {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": [tool_call(n, *each) for n, each in enumerate(calls)],
    }
    results = [{"role": "tool", "tool_call_id": str(n), "content": "r"} for n in range(len(calls))]
    options = ChatOptions(thinking=True, tools=(WEATHER,))
    question = found.render(parse_messages([ASKED]), options, str)
    history = found.render(parse_messages([ASKED, answer, *results]), options, str)
    assert history.startswith(question)
    said = history[len(question) : history.index(EOS)]

    split, parser = ReasoningSplit(ends_in_thinking(question)), ToolCallParser()
    pieces = [piece for part in cut(said, at) for piece in split.feed(part)] + split.finish()
    thought = "".join(piece.text for piece in pieces if piece.kind is PieceKind.REASONING)
    events = [e for piece in pieces if piece.kind is PieceKind.CONTENT for e in parser.feed(piece.text)]
    events += parser.finish()
    assert thought == reasoning
    assert "".join(e.text for e in events if isinstance(e, Content)) == content
    assert [e.name for e in events if isinstance(e, CallStart)] == [name for name, _ in calls]
    assert all(e.is_whole for e in events if isinstance(e, CallEnd))
    for n, (_, arguments) in enumerate(calls):
        text = "".join(e.text for e in events if isinstance(e, CallArguments) and e.index == n)
        assert json.loads(text) == arguments
