"""Reasoning, content and tool calls of a chat's stream, and going on with one that broke off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fake_server import Call, Running, chunk, text_tensor
from tests.gateway.conftest import CHAT, RunningGateway
from tests.gateway.test_http import events

from seekserve.client import Delta
from seekserve.gateway.ask import read_ask
from seekserve.gateway.bodies import Head
from seekserve.gateway.problems import ProblemError
from seekserve.gateway.record import Record
from seekserve.gateway.resume import backend_mark, cut, read_resume, wrap
from seekserve.gateway.sinks import StreamSink

THOUGHT = "I <b>add</b> é.</think>\n\nIt is 85."
CALL = (
    "Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>"
    '{"city": "Köln"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def answering(text: str, state: str, pieces: int = 7) -> Any:
    """A server that says where the text of the chat begins, with its first response only."""

    def script(_: Call) -> Iterator[Any]:
        size = max(1, len(text) // pieces)
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        for number, part in enumerate(parts, 1):
            is_last = number == len(parts)
            message = chunk(part, **({"final": True, "finish": "stop", "tokens": 9} if is_last else {}))
            if number == 1:
                message.infer_response.outputs.add(name="chat_state", datatype="BYTES", shape=[1, 1])
                message.infer_response.raw_output_contents.append(text_tensor(state))
            yield message

    return script


def joined(deltas: list[dict[str, Any]], key: str) -> str:
    return "".join(delta.get(key) or "" for delta in deltas)


def test_reasoning_and_content_come_apart_streamed_and_whole(server: Running, gateway: RunningGateway) -> None:
    server.triton.script = answering(THOUGHT, "thinking")
    chunks = events(gateway.chat({"stream": True}).text)[:-1]
    deltas = [each["choices"][0]["delta"] for each in chunks]
    assert joined(deltas, "reasoning_content") == "I <b>add</b> é."
    assert joined(deltas, "content") == "\n\nIt is 85."
    assert [delta for delta in deltas if "role" in delta] == deltas[:1]
    message = gateway.chat().json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("I <b>add</b> é.", "\n\nIt is 85.")


def test_tool_calls_are_parsed_where_tools_were_offered(server: Running, gateway: RunningGateway) -> None:
    server.triton.script = answering(CALL, "content")
    choice = gateway.chat({"tools": TOOLS}).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Köln"}
    assert json.loads(server.last.inputs()["chat_options"][2][4:]) == {"tools": TOOLS}
    chunks = events(gateway.chat({"tools": TOOLS, "stream": True}).text)[:-1]
    deltas = [each["choices"][0]["delta"] for each in chunks]
    streamed = [each for delta in deltas for each in delta.get("tool_calls", ())]
    assert joined([each["function"] for each in streamed], "arguments") == call["function"]["arguments"]
    assert (streamed[0]["id"].startswith("call_"), streamed[0]["function"]["name"]) == (True, "weather")
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    # Nobody asked for calls: then the markers are text like any other.
    plain = gateway.chat().json()["choices"][0]
    assert (plain["message"]["content"], plain["finish_reason"]) == (CALL, "stop")


Made = list[tuple["int | None", dict[str, Any]]]


def stream_events(texts: list[str], *, state: str, from_bytes: int) -> Made:
    """(id or None, delta) of every event that the sink makes of these pieces of text, without a server."""
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    ask = read_ask({**CHAT, "tools": TOOLS, "stream": True}, is_chat=True)
    head = Head(request_id="r", created_s=1, model="m", is_chat=True, include_usage=False)
    record = Record(request_id="r", route="", client="")
    sink = StreamSink(send, ask, head, record, {}, from_bytes=from_bytes)
    completion = SimpleNamespace(finish_reason="stop", prompt_tokens=1, completion_tokens=1)
    choice: Any = SimpleNamespace(index=0, chat_state=state, resume_token=None, served_by=None, completion=completion)

    async def run() -> None:
        for text in texts:
            await sink.take(choice, Delta(text, None, None, 0.0))
        await sink.end(choice)

    asyncio.run(run())
    out: Made = []
    position: int | None = None
    for line in b"".join(sent).decode().split("\n"):
        if line.startswith("id: "):
            position = int(line[4:])
        elif line.startswith("data: "):
            out.append((position, json.loads(line[6:])["choices"][0]["delta"]))
            position = None
    return out


def told(made: Made) -> tuple[str, str, str, str]:
    deltas = [delta for _, delta in made]
    calls = [each["function"] for delta in deltas for each in delta.get("tool_calls", ())]
    return (
        joined(deltas, "reasoning_content"),
        joined(deltas, "content"),
        joined(calls, "name"),
        joined(calls, "arguments"),
    )


@given(
    st.sampled_from([(THOUGHT, "thinking"), (CALL, "content"), ("<think>" + THOUGHT + CALL, "content")]),
    st.lists(st.integers(1, 9), min_size=1, max_size=40),
    st.lists(st.integers(1, 9), min_size=1, max_size=40),
    st.integers(0, 60),
)
def test_what_came_before_a_break_and_what_comes_after_it_are_the_whole(
    answer: tuple[str, str], sizes: list[int], other_sizes: list[int], stop_after: int
) -> None:
    text, state = answer

    def pieces(by: list[int]) -> list[str]:
        out, at, n = [], 0, 0
        while at < len(text):
            out.append(text[at : at + by[n % len(by)]])
            at, n = at + by[n % len(by)], n + 1
        return out

    whole = stream_events(pieces(sizes), state=state, from_bytes=0)
    # What came up to the last event with an id is kept, what came behind it is told again.
    kept = whole[: min(stop_after, len(whole) - 1)]
    while kept and kept[-1][0] is None:
        kept.pop()
    position = kept[-1][0] or 0 if kept else 0
    after = stream_events(pieces(other_sizes), state=state, from_bytes=position)
    assert [a + b for a, b in zip(told(kept), told(after), strict=True)] == list(told(whole))


def test_tokens_name_a_backend_and_a_state_and_nothing_else_passes() -> None:
    token = wrap("abc-1", "gpu1:8001", "thinking")
    assert "gpu1" not in token
    resume = read_resume({"x-resume-token": token, "last-event-id": "17"})
    assert resume is not None
    assert (resume.mark, resume.chat_state, resume.token, resume.from_bytes) == (
        backend_mark("gpu1:8001"),
        "thinking",
        "abc-1",
        17,
    )
    assert read_resume({}) is None
    for bad in ({"x-resume-token": "abc"}, {"x-resume-token": token, "last-event-id": "x"}):
        with pytest.raises(ProblemError):
            read_resume(bad)


@given(st.text(), st.integers(0, 20))
def test_a_cut_loses_nothing(text: str, at: int) -> None:
    position = len(text[:at].encode("utf-8", "replace"))
    if text.isprintable():
        assert cut(text, position) == (text[:at], text[at:])


def test_only_a_stream_of_one_choice_can_be_resumed(gateway: RunningGateway) -> None:
    for body in ({}, {"stream": True, "n": 2}):
        answer = gateway.chat(body, x_resumable="1")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream")
    foreign = gateway.chat({"stream": True}, x_resume_token=wrap("t", "elsewhere:1", None))
    assert (foreign.status_code, foreign.json()["error"]["param"]) == (400, "x-resume-token")


def test_a_stream_of_a_backend_that_is_away_may_be_asked_for_later(server: Running, gateway: RunningGateway) -> None:
    server.drop()
    gateway.chat()  # tells the gateway
    away = gateway.chat({"stream": True}, x_resume_token=wrap("t", server.url, None))
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")
