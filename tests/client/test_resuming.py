"""A stream whose connection breaks goes on where it was, for those who asked; leaving on purpose gives it up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from drive import HELLO, Drive
from fake_server import PATIENCE_S, Call, Running, chunk, error, text_tensor

from seekserve.client import AsyncClient, Client, GenerateRequest
from seekserve.errors import InputError, ServerError

TOKEN = "t0k"


class Breaking:
    """Says `text` in pieces of two characters; breaks each connection after `pieces` of them, `breaks` times."""

    def __init__(self, text: str, *, pieces: int, breaks: int) -> None:
        self.text, self.pieces, self.breaks_left = text, pieces, breaks

    def __call__(self, call: Call) -> Iterator[Any]:
        inputs = call.inputs()
        at_bytes = struct.unpack("<i", inputs["resume_from_bytes"][2])[0] if "resume_from_bytes" in inputs else 0
        rest = self.text.encode()[at_bytes:].decode()
        for n in range(0, len(rest), 2):
            if n == 2 * self.pieces and self.breaks_left:
                self.breaks_left -= 1
                call.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            yield chunk(rest[n : n + 2], token=TOKEN if n == 0 else None)
        yield chunk("", final=True, finish="stop")


def test_the_rest_is_fetched_as_often_as_the_connection_breaks(server: Running, drive: Drive) -> None:
    server.triton.script = Breaking("naïve 😀 text", pieces=1, breaks=4)
    outcome = drive(server.url, GenerateRequest(prompt="hello", tenant="a"), reconnects=1)
    assert outcome.done.text == "naïve 😀 text"
    calls = [call.inputs() for call in server.triton.calls]
    assert len(calls) == 5
    assert calls[0]["resumable"] == ("BOOL", [1, 1], b"\x01")
    for call in calls[1:]:
        assert set(call) == {"resume_token", "resume_from_bytes", "tenant", "stream"}
        assert call["resume_token"][2] == text_tensor(TOKEN)
    assert calls[2]["resume_from_bytes"][2] == struct.pack("<i", len("naïv".encode()))


def test_unasked_nothing_is_different(server: Running, drive: Drive) -> None:
    server.triton.script = Breaking("hello", pieces=1, breaks=1)
    outcome = drive(server.url)
    assert isinstance(outcome.error, ServerError)
    assert (outcome.kept_text, len(server.triton.calls)) == ("he", 1)
    assert "resumable" not in server.triton.calls[0].inputs()


def test_it_gives_up_after_so_many_in_a_row(server: Running, drive: Drive) -> None:
    broken = Breaking("hello", pieces=1, breaks=1)

    def script(call: Call) -> Iterator[Any]:
        if "resume_token" in call.inputs():
            call.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        yield from broken(call)

    server.triton.script = script
    outcome = drive(server.url, reconnects=2)
    assert isinstance(outcome.error, ServerError)
    assert (outcome.kept_text, len(server.triton.calls)) == ("he", 3)


def test_a_stream_without_a_token_cannot_come_back(server: Running, drive: Drive) -> None:
    def script(call: Call) -> Iterator[Any]:
        yield chunk("he")
        call.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    server.triton.script = script
    assert isinstance(drive(server.url, reconnects=5).error, ServerError)
    assert len(server.triton.calls) == 1


def test_a_refused_return_is_told_as_the_broken_connection_that_it_was(server: Running, drive: Drive) -> None:
    broken = Breaking("hello", pieces=1, breaks=1)
    line = {
        "code": "invalid",
        "reason": "no stream",
        "retry_after_ms": None,
        "request_id": "r",
        "field": "resume_token",
    }

    def script(call: Call) -> Iterator[Any]:
        if "resume_token" in call.inputs():
            yield error(json.dumps(line, separators=(",", ":")))
            return
        yield from broken(call)

    server.triton.script = script
    outcome = drive(server.url, reconnects=2)
    assert isinstance(outcome.error, ServerError)
    assert not isinstance(outcome.error, InputError)
    assert "could not be resumed" in str(outcome.error)
    assert outcome.kept_text == "he"


def forever(call: Call) -> Iterator[Any]:
    if "resume_cancel" in call.inputs():
        yield chunk("", final=True, finish="cancelled")
        return
    yield chunk("a", token=TOKEN)
    call.hang()


def farewells(server: Running) -> list[dict[str, Any]]:
    return [call.inputs() for call in server.triton.calls if "resume_cancel" in call.inputs()]


def test_leaving_on_purpose_gives_the_stream_up(server: Running, drive: Drive) -> None:
    server.triton.script = forever
    drive(server.url, GenerateRequest(prompt="hello", tenant="a", resumable=True), leave_after=1)
    (said,) = farewells(server)
    assert said["resume_token"][2] == text_tensor(TOKEN)
    assert said["tenant"][2] == text_tensor("a")
    assert server.triton.calls[0].is_ended.wait(PATIENCE_S)


def test_one_without_a_token_says_no_farewell(server: Running, drive: Drive) -> None:
    def script(call: Call) -> Iterator[Any]:
        yield chunk("a")
        call.hang()

    server.triton.script = script
    drive(server.url, leave_after=1)
    assert len(server.triton.calls) == 1


def test_a_stream_that_was_left_is_resumed_by_whoever_has_its_token(server: Running) -> None:
    server.triton.script = Breaking("hello you", pieces=99, breaks=0)
    with Client(server.url, "m") as client:
        stream = client.stream(GenerateRequest(prompt="hello", resumable=True))
        first = next(stream)
        token, received = stream.resume_token, stream.received_bytes
        stream.leave()
        assert token == TOKEN
        with client.resume(token, received_bytes=received) as rest:
            text = "".join(delta.text for delta in rest)
            assert rest.received_bytes == len(first.text) + len(text)
    assert first.text + text == "hello you"
    assert farewells(server) == []


def test_an_asyncio_stream_that_was_left_is_resumed_too(server: Running) -> None:
    server.triton.script = Breaking("hello you", pieces=99, breaks=0)

    async def run() -> str:
        async with AsyncClient(server.url, "m") as client:
            stream = client.stream(GenerateRequest(prompt="hello", resumable=True))
            first = await stream.__anext__()
            stream.leave()
            assert stream.resume_token is not None
            async with client.resume(stream.resume_token, received_bytes=stream.received_bytes) as rest:
                return first.text + "".join([delta.text async for delta in rest])

    assert asyncio.run(run()) == "hello you"
    assert farewells(server) == []


def test_closing_ends_the_wait_before_the_next_attempt(server: Running) -> None:
    broken = Breaking("hello", pieces=1, breaks=1)
    may_close = threading.Event()

    def script(call: Call) -> Iterator[Any]:
        if "resume_token" in call.inputs():
            may_close.set()
            call.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        yield from broken(call)

    server.triton.script = script
    with Client(server.url, "m") as client:
        stream = client.stream(HELLO, reconnects=10**6)
        closer = threading.Thread(target=lambda: (may_close.wait(PATIENCE_S), stream.close()))
        closer.start()
        # In the pause it is the broken connection that is told; between two attempts the iteration just ends.
        with contextlib.suppress(ServerError):
            for _ in stream:
                pass
        closer.join()


def test_a_negative_count_is_bad_input(server: Running) -> None:
    with Client(server.url, "m") as client, pytest.raises(InputError, match="reconnects: expected at least 0, got -1"):
        client.stream(HELLO, reconnects=-1)
