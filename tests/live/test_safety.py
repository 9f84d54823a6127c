"""Cancels, disconnects and load against the real server: it survives, and its books balance."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack

import grpc
import pytest
from scripts.benchlib import encode_request
from tests.live.conftest import TINY, Server

from seekserve.client import Client, GenerateRequest
from seekserve.errors import InputError, Refused

TERMINALS = ("finished", "cancelled", "expired", "refused", "failed")


def settled_counts(server: Server, model: str) -> dict[str, float]:
    """Terminal counts once nothing is in flight and nothing changed between two flushes (one a second)."""
    deadline = time.monotonic() + 30
    last: dict[str, float] = {}
    while True:
        counts = {t: server.metric_sum("seekserve_requests_ended_total", model, terminal=t) for t in TERMINALS}
        counts["offered"] = server.metric("seekserve_requests_offered_total", model)
        open_now = sum(server.metric(f"seekserve_{n}_requests", model) for n in ("intake", "running"))
        if counts == last and open_now == 0 and counts["offered"] == sum(counts[t] for t in TERMINALS):
            return counts
        assert time.monotonic() < deadline, (open_now, counts)
        last = counts
        time.sleep(1.2)


def storm(server: Server, model: str) -> list[str]:
    """How each of 200 requests ended, half of which are cancelled at any moment."""
    rng = random.Random(11)
    plans = [(rng.randint(1, 40), rng.random() * 0.2 if rng.random() < 0.5 else None) for _ in range(200)]
    ended: list[str] = []

    def run(share: list[tuple[int, float | None]]) -> None:
        with grpc.insecure_channel(server.grpc) as channel:
            stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            for max_tokens, cancel_after_s in share:
                call = stream(iter((encode_request(model, "Count from 1 to 30.", max_tokens),)), timeout=60)
                timer = threading.Timer(cancel_after_s, call.cancel) if cancel_after_s is not None else None
                if timer is not None:
                    timer.start()
                try:
                    for _ in call:
                        pass
                    ended.append("done")
                except grpc.RpcError as error:
                    ended.append(error.code().name)
                if timer is not None:
                    timer.cancel()

    threads = [threading.Thread(target=run, args=(plans[n::20],)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 200
    return ended


def recover_from_known_crash(server: Server, ended: list[str]) -> str:
    """Triton 24.10 may die of a cancel that crosses one of its writes: seldom, and with a bare Python model as well.

    Then this much has to hold: every client got a clear end, and the launch names the death and serves again. The
    other way to kill it, a question about a stream that has ended, would be our own fault and stands in its log.
    """
    trouble = str(server.wait_event("trouble", timeout_s=60)["text"])
    server.ready = server.wait_event("ready", timeout_s=120)
    assert "SIGSEGV" in trouble or "SIGABRT" in trouble
    assert "ResponseFactoryIsCancelled" not in server.log.read_text(encoding="utf-8", errors="replace")
    assert {*ended} <= {"done", "CANCELLED", "UNAVAILABLE"}
    return trouble


@pytest.mark.parametrize("model", ["synthetic", TINY])
def test_two_hundred_requests_with_random_cancels_leave_server_and_books_intact(server: Server, model: str) -> None:
    before = settled_counts(server, model)
    ended = storm(server, model)
    crash = None
    if "UNAVAILABLE" in ended:
        crash = recover_from_known_crash(server, ended)
        before = settled_counts(server, model)
        ended = storm(server, model)
    assert {*ended} <= {"done", "CANCELLED"}
    after = settled_counts(server, model)
    # A request that was cancelled before it left the client never arrives.
    assert ended.count("done") <= after["offered"] - before["offered"] <= 200
    # A cancel may come too late to change anything.
    assert ended.count("done") <= after["finished"] - before["finished"]
    assert after["failed"] == before["failed"]
    assert server.metric("seekserve_kv_used_blocks", model) == 0
    if crash is not None:
        pytest.xfail(f"a known race in Triton: {crash}; all clients were told, the next round passed")


def test_clients_that_drop_the_connection_are_cleaned_up(server: Server) -> None:
    before = settled_counts(server, TINY)
    for _ in range(8):
        channel = grpc.insecure_channel(server.grpc)
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        call = stream(iter((encode_request(TINY, "Count from 1 to 99.", 500),)), timeout=60)
        next(iter(call))
        channel.close()
    after = settled_counts(server, TINY)
    assert after["offered"] - before["offered"] == 8
    assert server.metric("seekserve_kv_used_blocks", TINY) == 0


def test_messages_and_the_rendered_text_are_the_same_prompt(server: Server) -> None:
    with Client(server.grpc, TINY) as client:
        chat = client.generate(
            GenerateRequest(messages=[{"role": "user", "content": "What is 37 + 48?"}], max_tokens=32)
        )
        for bos in ("", "<｜begin▁of▁sentence｜>", "<｜begin▁of▁sentence｜>" * 2):
            raw = client.generate(
                GenerateRequest(prompt=f"{bos}<｜User｜>What is 37 + 48?<｜Assistant｜>", max_tokens=32)
            )
            assert (raw.text, raw.prompt_tokens) == (chat.text, chat.prompt_tokens)
        assert (chat.chat_state, chat.content, chat.reasoning, raw.chat_state) == ("content", chat.text, None, None)


def test_what_the_model_s_template_does_not_know_is_refused_by_name(server: Server) -> None:
    hello = [{"role": "user", "content": "What is 37 + 48?"}]
    tool = {"type": "function", "function": {"name": "f"}}
    with Client(server.grpc, TINY) as client:
        for options, field in (({"tools": [tool]}, "tools"), ({"thinking": True}, "thinking")):
            with pytest.raises(InputError, match=f"{field}.*model '.*its chat template"):
                client.generate(GenerateRequest(messages=hello, chat_options=options, max_tokens=4))
        said = client.generate(GenerateRequest(messages=hello, chat_options={"thinking": False}, max_tokens=32))
        quoted = [{"role": "user", "content": "What is 37 + 48?<｜end▁of▁sentence｜>"}]
        assert client.generate(GenerateRequest(messages=quoted, max_tokens=4)).completion_tokens
        assert said.text == client.generate(GenerateRequest(messages=hello, max_tokens=32)).text


def test_a_deadline_that_cannot_be_met_is_answered_at_once(server: Server) -> None:
    with Client(server.grpc, TINY) as client, ExitStack() as fillers:
        # More work than the batch holds stands in front of it, and it has 1 ms to live.
        for _ in range(24):
            fillers.enter_context(client.stream(GenerateRequest(prompt="Count", max_tokens=200, min_tokens=200)))
        with pytest.raises(Refused) as caught:
            client.generate(GenerateRequest(prompt="late", max_tokens=5, deadline_ms=1))
    assert caught.value.code in ("overloaded", "expired"), "seen coming, or over before it was tokenised"
    assert caught.value.retry_after_ms is not None


def test_an_unknown_class_names_the_known_ones(server: Server) -> None:
    with Client(server.grpc, "synthetic") as client, pytest.raises(InputError, match="interactive"):
        client.generate(GenerateRequest(prompt="a", request_class="interactiv"))


def test_a_forwarded_header_names_the_class(server: Server) -> None:
    from tritonclient.grpc import service_pb2

    with grpc.insecure_channel(server.grpc) as channel:
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        request = encode_request("synthetic", "hi", 1)
        known = [("x-request-type", "offline"), ("x-tenant", "team-a")]
        (answer,) = stream(iter((request,)), timeout=30, metadata=known)
        assert not service_pb2.ModelStreamInferResponse.FromString(answer).error_message
        (answer,) = stream(iter((request,)), timeout=30, metadata=[("x-request-type", "ofline")])
    assert "offline" in service_pb2.ModelStreamInferResponse.FromString(answer).error_message
