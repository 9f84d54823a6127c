"""An answer taken apart gives the same whether it streams or comes as a whole."""

from __future__ import annotations

import pytest
from fake_server import chunk
from hypothesis import given
from hypothesis import strategies as st
from tests.text.streams import cut

from seekserve.client import AnswerReader, ChatAnswer, ToolCall, read_answer
from seekserve.client.assemble import Assembler

CALL = '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
ANSWER = f"because</think>so{CALL}"


@pytest.mark.parametrize(
    ("text", "state", "has_tools", "answer"),
    [
        (ANSWER, None, False, ChatAnswer(content=ANSWER, reasoning=None)),
        (ANSWER, "content", False, ChatAnswer(content=ANSWER, reasoning=None)),
        (ANSWER, "thinking", False, ChatAnswer(content=f"so{CALL}", reasoning="because")),
        (
            ANSWER,
            "thinking",
            True,
            ChatAnswer(
                content="so",
                reasoning="because",
                tool_calls=(ToolCall(name="f", arguments="{}", is_whole=True),),
            ),
        ),
        (
            f"so{CALL}"[:-30],
            "content",
            True,
            ChatAnswer(
                content="so",
                reasoning=None,
                tool_calls=(ToolCall(name="f", arguments="{", is_whole=False),),
                is_malformed=True,
            ),
        ),
    ],
)
def test_reasoning_content_and_calls(text: str, state: str | None, has_tools: bool, answer: ChatAnswer) -> None:
    got = read_answer(text, state, has_tools=has_tools)
    if got.is_malformed:
        got = ChatAnswer(
            content=got.content.partition("\n")[0],
            reasoning=got.reasoning,
            tool_calls=got.tool_calls,
            is_malformed=True,
        )
    assert got == answer


@given(at=st.lists(st.integers(0, len(ANSWER)), max_size=6))
def test_the_parts_that_stream_are_the_whole(at: list[int]) -> None:
    reader = AnswerReader("thinking", has_tools=True)
    parts = [reader.feed(piece) for piece in cut(ANSWER, at)] + [reader.finish()]
    assert reader.answer == read_answer(ANSWER, "thinking", has_tools=True)
    assert ("".join(r for r, _ in parts), "".join(c for _, c in parts)) == ("because", "so")


def test_a_completion_has_both_apart() -> None:
    assembler = Assembler(url="u", sent_at_s=0.0)
    assembler.feed(chunk("be", chat_state="thinking"), 1.0)
    assert assembler.chat_state == "thinking"
    assembler.feed(chunk("cause</think>so", final=True), 2.0)
    assembler.finish(3.0)
    completion = assembler.completion()
    assert (completion.reasoning, completion.content) == ("because", "so")
    assert completion.text == "because</think>so"
