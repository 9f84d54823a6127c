"""The protocol over real HTTP, in front of a scripted gRPC server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.client.fake_server import Call, Running, chunk, error
from tests.gateway.conftest import CHAT, PATIENCE_S, RunningGateway, Start

from seekserve.gateway.resume import wrap
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine

END_MARK = "triton_enable_empty_final_response"
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def three(_: Call) -> Iterator[Any]:
    yield chunk("Hel", queue_ms=3.0)
    yield chunk("")
    yield chunk("lo", final=True, finish="length", tokens=3, prompt_tokens=5, queue_ms=3.0)


def events(text: str) -> list[Any]:
    """The events of a stream; the last may be the end mark."""
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [each if (each := line[6:]) == "[DONE]" else json.loads(each) for line in lines]


def line(code: ErrorCode, retry_after_ms: int | None = None, field: str | None = None) -> Any:
    made = ErrorLine(code=code, reason="the reason", retry_after_ms=retry_after_ms, request_id="r", field=field)
    return error(made.to_line())


def input_text(call: Call, name: str) -> str:
    return call.inputs()[name][2][4:].decode()


def test_a_stream_ends_with_finish_then_usage_then_done_under_one_id(server: Running, gateway: RunningGateway) -> None:
    server.triton.script = three
    answer = gateway.chat(STREAM)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last, end = events(answer.text)
    assert end == "[DONE]"
    assert len({(each["id"], each["model"], each["created"]) for each in [*chunks, last]}) == 1
    assert [each["choices"][0]["delta"] for each in chunks] == [
        {"role": "assistant", "content": "Hel"},
        {"content": "lo"},
        {},
    ]
    # null until the last, and "length" exactly when the limit ended it
    assert [each["choices"][0]["finish_reason"] for each in chunks] == [None, None, "length"]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert [each["usage"] for each in chunks] == [None] * 3


def test_a_stream_that_did_not_ask_for_usage_has_none(server: Running, gateway: RunningGateway) -> None:
    server.triton.script = three
    assert not any("usage" in each for each in events(gateway.chat({"stream": True}).text)[:-1])


def test_a_whole_answer_has_everything(server: Running, gateway: RunningGateway) -> None:
    server.triton.script = three
    answer = gateway.chat(x_request_id="mine-1")
    body = answer.json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert (body["object"], body["id"]) == ("chat.completion", "chatcmpl-mine-1")
    assert answer.headers["x-request-id"] == "mine-1"
    assert server.last.request.id == "mine-1"


def test_completions_of_several_prompts_and_choices_keep_their_places(server: Running, gateway: RunningGateway) -> None:
    def echo(call: Call) -> Iterator[Any]:
        text = input_text(call, "text_input")
        yield chunk(text, final=True, finish="stop", tokens=1, prompt_tokens=2)

    server.triton.script = echo
    body = {"model": "m", "prompt": ["a", "b"], "n": 2}
    whole = gateway.post("/v1/completions", body).json()
    assert [(c["index"], c["text"]) for c in whole["choices"]] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert whole["usage"] == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}
    texts: dict[int, str] = {}
    for each in events(gateway.post("/v1/completions", {**body, "stream": True}).text)[:-1]:
        (choice,) = each["choices"]
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_the_routes_of_a_policy_see_the_path_and_the_headers(server: Running, gateway: RunningGateway) -> None:
    """A class that the caller wishes for is a header's word; only a key of the operator's names one outright."""

    def origin() -> dict[str, str]:
        assert "request_class" not in server.last.inputs()
        return {name: value.string_param for name, value in server.last.request.parameters.items()} | {END_MARK: ""}

    assert gateway.post("/v1/batch/completions", CHAT).json()["object"] == "chat.completion"
    assert origin() == {"endpoint": "/v1/batch/completions", END_MARK: ""}
    assert gateway.post("/v1/batch/completions", {"model": "m", "prompt": "x"}).json()["object"] == "text_completion"
    gateway.chat(x_request_type="bulk", x_tenant="a", x_deadline_ms="900")
    headers = {"x-request-type": "bulk", "x-tenant": "a", "x-deadline-ms": "900"}
    assert origin() == {"endpoint": "/v1/chat/completions", **headers, END_MARK: ""}


def test_models_and_a_wrong_model_is_404_with_the_list(gateway: RunningGateway) -> None:
    assert [each["id"] for each in gateway.client.get("/v1/models").json()["data"]] == ["m"]
    assert gateway.client.get("/v1/models/m").json()["id"] == "m"
    for answer in (gateway.client.get("/v1/models/q"), gateway.chat({"model": "q"})):
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "model"
        assert "served: m" in answer.json()["error"]["message"]


REFUSALS: list[tuple[ErrorCode, int | None, int, str, str | None]] = [
    (ErrorCode.OVERLOADED, 1500, 429, "load", "2"),
    (ErrorCode.NOT_SERVING, 300, 503, "not_serving", "1"),
    (ErrorCode.NOT_SERVING, None, 503, "not_serving", None),
    (ErrorCode.EXPIRED, 700, 504, "expired", "1"),
    (ErrorCode.TOO_LARGE, None, 400, "invalid", None),
    (ErrorCode.INVALID, None, 400, "invalid", None),
    (ErrorCode.FAILED, None, 500, "failed", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("code", "hint_ms", "status", "kind", "retry_after"), REFUSALS)
def test_refusals_have_a_status_a_reason_and_a_hint_and_are_counted_apart(
    server: Running,
    gateway: RunningGateway,
    code: ErrorCode,
    hint_ms: int | None,
    status: int,
    kind: str,
    retry_after: str | None,
    stream: bool,
) -> None:
    server.triton.script = lambda _: iter([line(code, hint_ms, "stop_words" if status == 400 else None)])
    answer = gateway.chat({"stream": stream})
    said = answer.json()["error"]
    assert answer.status_code == status
    assert (said["code"], said["message"]) == (code.value, "the reason")
    assert answer.headers.get("retry-after") == retry_after
    assert answer.headers.get("retry-after-ms") == (None if hint_ms is None else str(hint_ms))
    assert said["param"] == ("stop" if status == 400 else None)
    assert gateway.metric("seekserve_gateway_problems_total", kind=kind) == 1
    assert sum(gateway.metric("seekserve_gateway_problems_total", kind=k) for k in ("load", "not_serving")) == (
        kind in ("load", "not_serving")
    )


def test_an_error_in_the_middle_is_an_event_and_the_text_before_it_is_kept(
    server: Running, gateway: RunningGateway
) -> None:
    server.triton.script = lambda _: iter([chunk("half"), line(ErrorCode.FAILED)])
    first, last = events(gateway.chat({"stream": True}).text)
    assert first["choices"][0]["delta"]["content"] == "half"
    assert last["error"]["code"] == "failed"


def test_what_a_server_says_in_its_own_words_reaches_no_client(server: Running, gateway: RunningGateway) -> None:
    server.triton.script = lambda _: iter([error("Traceback: /opt/secret/model.py line 3")])
    answer = gateway.chat()
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_a_clients_own_words_are_in_no_log_and_its_fields_have_its_names(
    server: Running, gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    said = ErrorLine(
        code=ErrorCode.INVALID,
        reason="stop_words: 'secret words' is too long",
        retry_after_ms=None,
        request_id="r",
        field="stop_words",
    )
    server.triton.script = lambda _: iter([error(said.to_line())])
    answer = gateway.chat(x_request_id="r-1").json()["error"]
    assert (answer["param"], answer["message"]) == ("stop", "stop: 'secret words' is too long")
    assert "request r-1 at" in caplog.text
    assert "secret" not in caplog.text


def test_log_probabilities_belong_to_the_text_they_came_with(server: Running, gateway: RunningGateway) -> None:
    import struct

    def scored(text: str, *logprobs: float, **more: Any) -> Any:
        message = chunk(text, **more)
        message.infer_response.outputs.add(name="output_log_probs", datatype="FP32", shape=[1, 1, len(logprobs)])
        message.infer_response.raw_output_contents.append(struct.pack(f"<{len(logprobs)}f", *logprobs))
        return message

    server.triton.script = lambda _: iter([scored("a", -0.5), scored("é", -1.0, -2.0, final=True, finish="stop")])
    expected = [("a", -0.5), ("", -1.0), ("é", -2.0)]
    whole = gateway.chat({"logprobs": True}).json()["choices"][0]["logprobs"]["content"]
    assert [(each["token"], each["logprob"]) for each in whole] == expected
    assert whole[2]["bytes"] == [0xC3, 0xA9]
    chunks = events(gateway.chat({"logprobs": True, "stream": True}).text)[:-1]
    streamed = [e for each in chunks for e in (each["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert [(each["token"], each["logprob"]) for each in streamed] == expected
    raw = gateway.post("/v1/completions", {"model": "m", "prompt": "x", "logprobs": 0}).json()["choices"][0]["logprobs"]
    assert (raw["tokens"], raw["text_offset"]) == (["a", "", "é"], [0, 1, 1])


class Leaver:
    """A client that sends a request by hand, so that it can leave at any moment."""

    def __init__(self, gateway: RunningGateway, body: dict[str, Any], header: str = "host: x") -> None:
        place = urlsplit(gateway.url)
        data = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\n{header}\r\ncontent-length: {len(data)}\r\n\r\n"
        self.socket = socket.create_connection((str(place.hostname), int(place.port or 0)), PATIENCE_S)
        self.socket.sendall(head.encode() + data)

    def leave(self) -> None:
        self.socket.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("has_begun", [False, True], ids=["queued", "answering"])
def test_a_client_that_leaves_is_cancelled_at_the_backend(
    server: Running, gateway: RunningGateway, stream: bool, has_begun: bool
) -> None:
    is_asked = threading.Event()

    def slow(call: Call) -> Iterator[Any]:
        is_asked.set()
        if has_begun:
            yield chunk("first")
        call.hang()

    server.triton.script = slow
    leaver = Leaver(gateway, {**CHAT, "stream": stream})
    assert is_asked.wait(PATIENCE_S)
    if has_begun and stream:
        assert leaver.socket.recv(12) == b"HTTP/1.1 200"
    leaver.leave()
    assert server.last.is_ended.wait(PATIENCE_S)
    assert server.last.was_cancelled


def test_a_stream_that_can_be_resumed_is_left_when_its_client_goes_and_given_up_when_its_time_is_over(
    server: Running, gateway: RunningGateway, tmp_path: Path
) -> None:
    def endless(call: Call) -> Iterator[Any]:
        if "resume_cancel" in call.inputs():
            yield chunk("", final=True, finish="cancelled")
            return
        yield chunk("first", token="t0k")
        call.hang()

    def farewells() -> list[Call]:
        return [call for call in server.triton.calls if "resume_cancel" in call.inputs()]

    server.triton.script = endless
    server.triton.models = ["m", "another"]  # so that a farewell has to name the model
    leaver = Leaver(gateway, {**CHAT, "stream": True}, "x-resumable: 1")
    text = leaver.socket.recv(1 << 16)
    leaver.leave()
    assert server.last.is_ended.wait(PATIENCE_S)
    assert (b".n.t0k\r\n" in text, farewells()) == (True, [])
    late = gateway.chat({"stream": True}, x_resumable="1", x_request_timeout_ms="200")
    assert events(late.text.partition("\n")[2])[-1]["error"]["code"] == "timed_out"
    gateway.stop()  # waits for farewells
    (said,) = farewells()
    assert (said.request.model_name, input_text(said, "resume_token")) == ("m", "t0k")
    assert "t0k" not in (tmp_path / "requests.jsonl").read_text()


def test_a_stream_is_given_up_with_its_token(server: Running, gateway: RunningGateway) -> None:
    server.triton.script = lambda _: iter([chunk("", final=True, finish="cancelled")])
    token = wrap("t0k", server.url, "content")
    answer = gateway.chat({"stream": True}, x_resume_token=token, x_resume_cancel="1")
    assert '"finish_reason":"cancelled"' in answer.text
    inputs = server.last.inputs()
    assert (inputs["resume_cancel"][2], input_text(server.last, "resume_token")) == (b"\x01", "t0k")


def test_who_waits_gets_signs_of_life_that_clients_skip(server: Running, gateway: RunningGateway) -> None:
    def slow(_: Call) -> Iterator[Any]:
        yield chunk("", queue_ms=100.0)
        yield chunk("", queue_ms=200.0)
        yield from three(_)

    server.triton.script = slow
    answer = gateway.chat({"stream": True}, x_heartbeat_ms="100")
    assert answer.text.startswith(": waiting\n\n: waiting\n\ndata: ")
    assert answer.text.count(": waiting") == 2
    assert server.last.inputs()["heartbeat_ms"][2] == (100).to_bytes(4, "little")
    assert ": waiting" not in gateway.chat({"stream": True}).text
    server.triton.script = lambda _: iter([line(ErrorCode.INVALID, None, "heartbeat_ms")])
    assert gateway.chat({"stream": True}, x_heartbeat_ms="1").json()["error"]["param"] == "x-heartbeat-ms"


def test_a_stream_that_outlasts_the_drain_time_ends_with_a_word(server: Running, start: Start) -> None:
    gateway = start(drain_timeout_s=1.0)

    def endless(call: Call) -> Iterator[Any]:
        yield chunk("first")
        call.hang()

    server.triton.script = endless
    leaver = Leaver(gateway, {**CHAT, "stream": True})
    text = leaver.socket.recv(12)
    gateway.stop()
    while data := leaver.socket.recv(1 << 16):
        text += data
    assert b"first" in text
    assert b'"code": "not_serving"' in text
    assert b"[DONE]" not in text
    leaver.leave()
    assert server.last.is_ended.wait(PATIENCE_S)
    assert server.last.was_cancelled


def test_half_a_character_is_the_requests_fault(gateway: RunningGateway) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}'
    answer = gateway.client.post("/v1/chat/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid")


def test_deadlines_travel_down_and_the_whole_time_is_kept_here(server: Running, gateway: RunningGateway) -> None:
    gateway.chat(x_deadline_ms="1234")
    assert server.last.inputs()["deadline_ms"][2] == (1234).to_bytes(4, "little")
    server.triton.script = lambda call: iter(call.hang() or ())  # type: ignore[func-returns-value]
    answer = gateway.chat(x_request_timeout_ms="50")
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timed_out")
    assert server.last.inputs()["deadline_ms"][2] == (50).to_bytes(4, "little")
    assert server.last.is_ended.wait(PATIENCE_S)
    for bad in ("0", "-1", "1.5", "x", "99999999999"):
        assert gateway.chat(x_deadline_ms=bad).status_code == 400


def test_a_refusal_is_tried_once_on_another_backend(server: Running, start: Start) -> None:
    other = Running()
    try:
        gateway = start(server, other)
        server.triton.script = other.triton.script = lambda _: iter([line(ErrorCode.OVERLOADED, 10)])
        answer = gateway.chat()
        assert answer.status_code == 429
        assert (len(server.triton.calls), len(other.triton.calls)) == (1, 1)
        other.triton.script = three
        assert all(gateway.chat({"stream": stream}).status_code == 200 for stream in (True, False, True))
        assert gateway.metric("seekserve_gateway_retries_total") >= 2
        # Bad input is bad everywhere, and what has begun cannot be begun again.
        calls = len(server.triton.calls) + len(other.triton.calls)
        server.triton.script = other.triton.script = lambda _: iter([line(ErrorCode.INVALID)])
        assert gateway.chat().status_code == 400
        server.triton.script = other.triton.script = lambda _: iter([chunk("x"), line(ErrorCode.OVERLOADED, 10)])
        assert events(gateway.chat({"stream": True}).text)[-1]["error"]["code"] == "overloaded"
        assert len(server.triton.calls) + len(other.triton.calls) == calls + 2
    finally:
        other.drop()


def test_a_backend_that_is_gone_is_passed_over_and_readiness_follows(server: Running, start: Start) -> None:
    other = Running()
    gateway = start(server, other, probe_period_s=0.05)
    other.drop()
    assert [gateway.chat().status_code for _ in range(4)] == [200] * 4
    assert gateway.client.get("/health/ready").status_code == 200
    server.drop()
    assert gateway.client.get("/health/live").status_code == 200
    answer = gateway.chat()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert gateway.client.get("/health/ready").status_code == 503


def test_too_large_bodies_and_what_is_no_json(start: Start) -> None:
    gateway = start(max_body_bytes=2000)
    large = gateway.chat({"messages": [{"role": "user", "content": "x" * 3000}]})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"[" * 100

    assert gateway.client.post("/v1/completions", content=endless()).status_code == 413
    broken = gateway.client.post("/v1/completions", content=b'{"model": ')
    assert (broken.status_code, "not JSON" in broken.text) == (400, True)
    assert gateway.client.post("/v1/completions", content=b"[" * 1999).status_code == 400


def test_a_body_that_trickles_is_given_up(start: Start) -> None:
    gateway = start(body_timeout_s=0.3)
    host, port = urlsplit(gateway.url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n" + b'{"model"')
        answer = b""
        while piece := connection.recv(4096):  # until the gateway closes it
            answer += piece
    assert answer.startswith(b"HTTP/1.1 408 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert (error["code"], "8 bytes of the body" in error["message"]) == ("body_timeout", True)
    assert gateway.chat().status_code == 200
    assert gateway.metric("seekserve_gateway_in_flight_requests") == 0.0


@pytest.mark.parametrize("stream", [False, True])
def test_who_answered_in_place_of_the_model_that_was_asked_is_told(
    server: Running, gateway: RunningGateway, stream: bool
) -> None:
    assert "x-served-by" not in gateway.chat({"stream": stream}).headers
    server.triton.script = lambda _: iter([chunk("ok", served_by="m-int8"), chunk("", final=True, finish="stop")])
    assert gateway.chat({"stream": stream}).headers["x-served-by"] == "m-int8"


def test_unknown_routes_and_methods_have_the_same_form_and_no_page_may_ask(gateway: RunningGateway) -> None:
    assert gateway.client.get("/v1/embeddings").json()["error"]["code"] == "not_found"
    assert gateway.client.get("/v1/chat/completions").status_code == 405
    preflight = gateway.client.options("/v1/chat/completions", headers={"origin": "http://evil", "host": "x"})
    assert preflight.status_code == 405
    answer = gateway.client.get("/v1/models", headers={"origin": "http://evil"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_request_log_has_ids_and_figures_and_no_prompt(
    server: Running, gateway: RunningGateway, tmp_path: Path
) -> None:
    server.triton.script = three
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    gateway.chat({"messages": [{"role": "user", "content": "secret words"}]}, traceparent=parent)
    gateway.chat({"stop": [{"secret": "words"}]})
    text = (tmp_path / "requests.jsonl").read_text()
    done, refused = map(json.loads, text.splitlines())
    assert "secret" not in text
    assert {"status": 200, "prompt_tokens": 5, "completion_tokens": 3, "queue_ms": 3.0}.items() <= done.items()
    assert done["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert {"status": 400, "kind": "invalid", "reason": "stop"}.items() <= refused.items()
    assert dict(server.last.context.invocation_metadata())["traceparent"] == parent


def test_the_gateway_counts_what_clients_saw(server: Running, gateway: RunningGateway) -> None:
    server.triton.script = three
    gateway.chat({"stream": True})
    gateway.chat()
    metric = gateway.metric
    assert metric("seekserve_gateway_requests_total", route="/v1/chat/completions", status="200") == 2
    assert metric("seekserve_gateway_tokens_total", direction="completion", model="m") == 6
    assert metric("seekserve_gateway_ttft_seconds_count", model="m") == 1
    assert metric("seekserve_gateway_e2e_seconds_count", model="m") == 2
    assert metric("seekserve_gateway_backend_up", backend=server.url) == 1
    assert metric("seekserve_gateway_in_flight_requests") == 0
