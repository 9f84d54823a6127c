"""How a stream ends: the flag in every place it can stand, errors, silence, a server that goes away."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from drive import HELLO, Drive
from fake_server import PATIENCE_S, Call, Running, Script, chunk, empty_final, error

from seekserve.client import AsyncClient, Client, GenerateRequest, TextKind
from seekserve.errors import NotAccepted, ProtocolError, Refused, RequestFailed, SeekserveError, ServerError, TimedOut


def says(*responses: Any, then_hang: bool = False) -> Script:
    def script(call: Call) -> Iterator[Any]:
        yield from responses
        if then_hang:
            call.hang()

    return script


COMPLETE = {
    "final flag with the last text": says(
        chunk("a", final=False), chunk("b", final=True, finish="stop", tokens=2, prompt_tokens=5, queue_ms=1.5)
    ),
    "separate empty final": says(
        chunk("a", final=False),
        chunk("b", final=False, finish="stop", tokens=2, prompt_tokens=5, queue_ms=1.5),
        empty_final(),
    ),
    "separate empty final on a stream that stays open": says(
        chunk("a"), chunk("b", finish="stop", tokens=2, prompt_tokens=5, queue_ms=1.5), empty_final(), then_hang=True
    ),
    "finish reason, no flag, stream stays open": says(
        chunk("a"), chunk("b", finish="stop", tokens=2, prompt_tokens=5, queue_ms=1.5), then_hang=True
    ),
    "finish reason, no flag, stream closes": says(
        chunk("a"), chunk("b", finish="stop", tokens=2, prompt_tokens=5, queue_ms=1.5)
    ),
    "stop reason in an extra response without text": says(
        chunk("a"), chunk("b"), chunk(final=True, finish="stop", tokens=2, prompt_tokens=5, queue_ms=1.5)
    ),
}


@pytest.mark.parametrize("script", COMPLETE.values(), ids=COMPLETE.keys())
def test_every_honest_ending_gives_the_same_completion(server: Running, drive: Drive, script: Script) -> None:
    server.triton.script = script
    outcome = drive(server.url, idle_timeout_s=1.0)
    done = outcome.done
    assert (done.text, done.finish_reason, done.prompt_tokens, done.completion_tokens) == ("ab", "stop", 5, 2)
    assert done.queue_ms == 1.5
    assert [delta.text for delta in outcome.deltas] == ["a", "b"]
    assert done.ttft_s is not None
    assert 0 < done.ttft_s <= done.e2e_s
    assert list(done.deltas) == outcome.deltas


def test_clean_close_without_flag_or_reason_is_complete_with_an_unknown_reason(server: Running, drive: Drive) -> None:
    server.triton.script = says(chunk("a"), chunk("b"))
    done = drive(server.url).done
    assert (done.text, done.finish_reason, done.completion_tokens, done.tokens_per_s) == ("ab", None, None, None)


def test_clean_close_without_any_response_is_a_protocol_error(server: Running, drive: Drive) -> None:
    server.triton.script = says()
    assert isinstance(drive(server.url).error, ProtocolError)


def test_final_flag_false_on_every_response_then_silence_times_out(server: Running, drive: Drive) -> None:
    server.triton.script = says(chunk("a", final=False, tokens=1), chunk("b", final=False, tokens=2), then_hang=True)
    outcome = drive(server.url, idle_timeout_s=0.3)
    assert isinstance(outcome.error, TimedOut)
    assert server.url in str(outcome.error)
    assert "0.3 s after 2 responses with 2 tokens" in str(outcome.error)
    assert outcome.kept_text == "ab"
    assert server.last.is_ended.wait(PATIENCE_S)
    assert server.last.was_cancelled


def test_silence_from_the_start_times_out(server: Running, drive: Drive) -> None:
    server.triton.script = says(then_hang=True)
    outcome = drive(server.url, idle_timeout_s=0.3)
    assert isinstance(outcome.error, TimedOut)
    assert "since the request was sent" in str(outcome.error)


def test_the_idle_deadline_counts_from_the_last_response_not_from_the_first(server: Running, drive: Drive) -> None:
    def slow(call: Call) -> Iterator[Any]:
        for number in range(6):
            yield chunk(str(number), final=number == 5)
            call.is_ended.wait(0.25)

    server.triton.script = slow
    assert drive(server.url, idle_timeout_s=1.0).done.text == "012345"


def line(code: str, reason: str = "queue is full: 30 of 30", retry: int | None = 250, **more: Any) -> str:
    body = {"code": code, "reason": reason, "retry_after_ms": retry, "request_id": "r1", **more}
    return json.dumps(body, separators=(",", ":"))


ERRORS: dict[str, tuple[str, type[SeekserveError], str]] = {
    "overloaded": (line("overloaded"), Refused, "queue is full: 30 of 30"),
    "not serving": (line("not_serving", "draining", None), Refused, "cannot help"),
    "expired": (line("expired", "deadline 50 ms, waited 51 ms"), Refused, "250 ms"),
    "prefixed by triton": ("in ensemble 'x', Failed: " + line("overloaded"), Refused, "queue is full"),
    "invalid": (line("invalid", "at least 1, got 0", None, field="max_tokens"), NotAccepted, "max_tokens: at"),
    "too large": (line("too_large", "prompt 900 tokens, limit 511", None, field="text_input"), NotAccepted, "900"),
    "failed": (line("failed", "the engine failed", None), RequestFailed, "request r1"),
    "cancelled": (line("cancelled", "cancelled by the client", None), RequestFailed, "cancelled"),
    "no line": ("Stub process 'm_0_0' is not healthy.", RequestFailed, "not healthy"),
    "broken line": ('{"code":"overloaded","reason":3}', RequestFailed, "overloaded"),
    "unknown model": ("Request for unknown model: 'x' is not found", RequestFailed, "seekserve status"),
}


@pytest.mark.parametrize("tokens_before", [0, 2])
@pytest.mark.parametrize(("message", "kind", "says_so"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_typed_and_the_text_before_it_is_kept(
    server: Running, drive: Drive, message: str, kind: type[SeekserveError], says_so: str, tokens_before: int
) -> None:
    # Triton lets good responses follow an error; nothing after it belongs to the answer.
    server.triton.script = says(*[chunk("t")] * tokens_before, error(message), chunk("late", final=True))
    outcome = drive(server.url)
    assert type(outcome.error) is kind
    assert says_so in str(outcome.error)
    assert outcome.completion is None
    assert outcome.kept_text == "t" * tokens_before
    assert outcome.kept_text == "".join(delta.text for delta in outcome.deltas)


def test_a_refusal_carries_its_numbers(server: Running, drive: Drive) -> None:
    server.triton.script = says(error(line("overloaded")))
    refused = drive(server.url).error
    assert isinstance(refused, Refused)
    assert (refused.code, refused.retry_after_ms, refused.request_id) == ("overloaded", 250, "r1")
    assert refused.exit_code == 4


def test_an_error_line_in_a_grpc_status_means_the_same_as_in_a_response(server: Running, drive: Drive) -> None:
    def script(call: Call) -> Iterator[Any]:
        yield chunk("a")
        call.abort(grpc.StatusCode.UNAVAILABLE, line("overloaded"))

    server.triton.script = script
    assert isinstance(drive(server.url).error, Refused)


STATUSES = [
    (grpc.StatusCode.INTERNAL, RequestFailed),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, RequestFailed),
    (grpc.StatusCode.CANCELLED, RequestFailed),
    (grpc.StatusCode.UNIMPLEMENTED, ProtocolError),
    (grpc.StatusCode.DEADLINE_EXCEEDED, TimedOut),
    (grpc.StatusCode.UNAVAILABLE, ServerError),
]


@pytest.mark.parametrize(("status", "kind"), STATUSES, ids=lambda value: getattr(value, "name", ""))
def test_a_grpc_status_without_a_line_is_typed(
    server: Running, drive: Drive, status: grpc.StatusCode, kind: type[SeekserveError]
) -> None:
    def script(call: Call) -> Iterator[Any]:
        yield chunk("a")
        call.abort(status, "because")

    server.triton.script = script
    outcome = drive(server.url)
    assert type(outcome.error) is kind
    assert "because" in str(outcome.error)
    assert server.url in str(outcome.error)


def test_a_server_that_goes_away_in_the_middle_is_a_server_error_with_the_text_kept(
    server: Running, drive: Drive
) -> None:
    def script(call: Call) -> Iterator[Any]:
        yield chunk("a", tokens=1)
        server.drop()
        call.hang()

    server.triton.script = script
    outcome = drive(server.url)
    assert type(outcome.error) in (ServerError, RequestFailed)
    assert server.url in str(outcome.error)
    assert outcome.kept_text == "a"


def test_nobody_listening_is_a_server_error_with_the_url(drive: Drive) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = drive(url, connect_timeout_s=2.0)
    assert type(outcome.error) is ServerError
    assert url in str(outcome.error)
    assert "gRPC port" in str(outcome.error)


def test_a_listener_that_never_speaks_is_given_up_at_the_connect_timeout(drive: Drive) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        outcome = drive(f"127.0.0.1:{mute.getsockname()[1]}", connect_timeout_s=0.3, idle_timeout_s=30.0)
    assert type(outcome.error) in (ServerError, TimedOut)


def test_a_client_recovers_when_the_server_is_back(server: Running) -> None:
    with Client(server.url, "m") as client:
        assert client.generate(HELLO).text == "ok"
        server.drop()
        with pytest.raises(ServerError):
            client.generate(HELLO)
        assert not client.is_ready()


def test_cumulative_text_gives_the_same_deltas(server: Running, drive: Drive) -> None:
    server.triton.script = says(chunk("Hi"), chunk("Hi th"), chunk("Hi there"), chunk("Hi there", final=True))
    outcome = drive(server.url, text_kind=TextKind.CUMULATIVE)
    assert [delta.text for delta in outcome.deltas] == ["Hi", " th", "ere", ""]
    assert outcome.done.text == "Hi there"


def test_cumulative_text_that_is_no_extension_is_a_protocol_error(server: Running, drive: Drive) -> None:
    server.triton.script = says(chunk("Hi"), chunk(" there", final=True))
    outcome = drive(server.url, text_kind=TextKind.CUMULATIVE)
    assert isinstance(outcome.error, ProtocolError)
    assert outcome.kept_text == "Hi"


def test_a_completion_before_the_end_is_a_programming_error(server: Running) -> None:
    server.triton.script = says(chunk("a"), then_hang=True)
    with Client(server.url, "m") as client, client.stream(HELLO) as stream:
        next(stream)
        with pytest.raises(RuntimeError, match="not ended"):
            _ = stream.completion
    with pytest.raises(RuntimeError, match="not ended"):
        _ = AsyncClient(server.url, "m").stream(GenerateRequest(prompt="x")).completion
