"""Our model in front of a stock `tensorrt_llm` model, both in the real server; the stock model is a double of it.

Over BLS only one request at a time: with more, the stub of Triton 24.10 can lock up (see triton/bls.py).
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from scripts.benchlib import encode_request, synthetic_bundle
from tests.doubles.stock_tensorrt_llm.install import StockDouble
from tests.live.conftest import Deployment, Server, run_cli
from tests.live.test_safety import settled_counts

from seekserve.client import Client, GenerateRequest
from seekserve.errors import InputError, ServerError

MODEL = "front"
PROMPT = "Count from 1 to 30."


class Pair:
    def __init__(self, deployment: Deployment, folder: Path, carrier: str, **parameters: str) -> None:
        port = _free_port()
        if carrier == "grpc":
            parameters["stock_grpc_address"] = f"127.0.0.1:{port}"
        repository = folder / "repository"
        run_cli("render", synthetic_bundle(folder / "bundle", name=MODEL), "--out", repository)
        config = repository / MODEL / "config.pbtxt"
        for key, value in {"stock_model": "tensorrt_llm", **parameters}.items():
            line = f'\nparameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            config.write_text(config.read_text() + line)
        _never_open_the_breaker(repository / MODEL / "policy.json")
        self.stock = StockDouble(repository)
        self.server = Server(deployment, "--grpc-port", str(port), repository=repository)

    def generate(self, **fields: Any) -> Any:
        with Client(self.server.grpc, MODEL) as client:
            return client.generate(GenerateRequest(**{"prompt": PROMPT, "max_tokens": 9, **fields}))

    def call(self, max_tokens: int) -> Any:
        """(channel, call) of a raw stream."""
        channel = grpc.insecure_channel(self.server.grpc)
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        return channel, stream(iter((encode_request(MODEL, PROMPT, max_tokens),)), timeout=60)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, self.stock.journal()[-5:]
            time.sleep(0.1)


def _never_open_the_breaker(policy: Path) -> None:
    data = json.loads(policy.read_text())
    data["breaker"].update(faults_in_a_row=10_000, least_ends=100_000)
    policy.write_text(json.dumps(data))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module", params=["grpc", "bls"])
def running(
    deployment: Deployment, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Pair]:
    pair = Pair(deployment, tmp_path_factory.mktemp("stock"), request.param)
    try:
        yield pair
    finally:
        code = pair.server.stop()
    assert code == 0, pair.server.log.read_text()[-3000:]


@pytest.fixture
def pair(running: Pair) -> Iterator[Pair]:
    yield running
    running.stock.control()


def test_the_stock_model_s_tokens_are_the_answer(pair: Pair) -> None:
    answer = pair.generate()
    # It repeats its prompt, which begins with BOS.
    assert (answer.text, answer.finish_reason, answer.completion_tokens) == ("Count from 1 to 30", "length", 9)
    assert len(answer.deltas) > 4
    sent = pair.stock.journal("start")[-1]["inputs"]
    assert (sent["request_output_len"], sent["streaming"], sent["end_id"]) == ([[9]], [[True]], [[1]])


@pytest.mark.parametrize("shows_end_id", [True, False])
def test_its_own_end_is_a_stop(pair: Pair, shows_end_id: bool) -> None:
    pair.stock.control(end_after=4, shows_end_id=shows_end_id, tokens_per_response=3)
    answer = pair.generate()
    assert (answer.finish_reason, answer.completion_tokens) == ("stop", 4)


def test_a_stop_word_stops_the_stock_model_too(pair: Pair) -> None:
    answer = pair.generate(stop=["to"], max_tokens=3000)
    assert (answer.text, answer.finish_reason) == ("Count from 1 ", "stop")
    stock_id = pair.stock.journal("start")[-1]["id"]
    pair.until(lambda: any(end["id"] == stock_id for end in pair.stock.journal("end")))
    assert pair.stock.journal("end")[-1]["stopped"]
    assert {stop["id"] for stop in pair.stock.journal("stop")} >= {stock_id}


@pytest.mark.parametrize("first_s", [0.0, 1.0])
def test_a_client_that_leaves_stops_it(pair: Pair, first_s: float) -> None:
    pair.stock.control(first_s=first_s, token_s=0.02)
    starts = len(pair.stock.journal("start"))
    channel, call = pair.call(3000)
    if first_s == 0.0:
        next(iter(call))
    pair.until(lambda: len(pair.stock.journal("start")) > starts)
    call.cancel()
    channel.close()
    pair.until(lambda: len(pair.stock.journal("start")) == len(pair.stock.journal("end")))
    end = pair.stock.journal("end")[-1]
    assert end["stopped"]
    assert end["tokens"] < 300
    settled_counts(pair.server, MODEL)
    assert pair.server.metric("seekserve_kv_used_blocks", MODEL) == 0


@pytest.mark.parametrize("running", ["grpc"], indirect=True)
def test_unanswered_requests_do_not_hold_up_the_answers_to_others(pair: Pair) -> None:
    # More than the server has threads for calls without an answer.
    pair.stock.control(first_s=4.0)
    starts = len(pair.stock.journal("start"))
    calls = [pair.call(2) for _ in range(40)]
    pair.until(lambda: len(pair.stock.journal("start")) >= starts + 20)
    ends = len(pair.stock.journal("end"))
    with pytest.raises(InputError, match="interactive"):
        pair.generate(request_class="interactiv")
    assert len(pair.stock.journal("end")) == ends
    for channel, call in calls:
        assert list(call)
        channel.close()


@pytest.mark.parametrize("running", ["grpc"], indirect=True)
def test_a_hundred_requests_with_random_cancels_leave_balanced_books(pair: Pair) -> None:
    rng = random.Random(5)
    pair.stock.control(fault="error", fault_share=10)
    before = settled_counts(pair.server, MODEL)
    plans = [(rng.randint(1, 40), rng.random() * 0.15 if rng.random() < 0.5 else None) for _ in range(100)]
    outcomes: list[str] = []

    def run(share: list[tuple[int, float | None]]) -> None:
        for max_tokens, cancel_after_s in share:
            channel, call = pair.call(max_tokens)
            timer = threading.Timer(cancel_after_s or 60.0, call.cancel)
            timer.start()
            try:
                outcomes.append("done" if list(call) else "empty")
            except grpc.RpcError as error:
                outcomes.append(error.code().name)
            timer.cancel()
            channel.close()

    threads = [threading.Thread(target=run, args=(plans[n::10],)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 100
    assert {*outcomes} <= {"done", "CANCELLED"}
    after = settled_counts(pair.server, MODEL)
    assert 1 <= after["failed"] - before["failed"] <= 10
    pair.until(lambda: len(pair.stock.journal("start")) == len(pair.stock.journal("end")))
    pair.until(lambda: pair.server.metric("seekserve_kv_used_blocks", MODEL) == 0)
    starts = [start["id"] for start in pair.stock.journal("start")]
    assert len({*starts}) == len(starts)
    assert pair.server.metric("seekserve_engine_restarts_total", MODEL) == 0


# Over BLS Triton 24.10 loses an error in mid-stream, and a model that got one does not unload.
@pytest.mark.parametrize("running", ["grpc"], indirect=True)
@pytest.mark.parametrize("fault", ["error", "error_midway", "silent_end"])
def test_its_error_fails_the_request_and_is_not_echoed(pair: Pair, fault: str) -> None:
    pair.stock.control(fault=fault)
    with pytest.raises(ServerError) as caught:
        pair.generate()
    for secret in ("requestId 7", "/secret", "memory"):
        assert secret not in str(caught.value)
    pair.stock.control()
    assert pair.generate().finish_reason == "length"


def test_a_stock_model_that_hangs_or_dies_fails_what_runs_and_the_server_lives(
    deployment: Deployment, tmp_path: Path
) -> None:
    pair = Pair(deployment, tmp_path, "grpc", stock_stall_s="3")
    try:
        pair.stock.control(fault="hang")
        with pytest.raises(ServerError):
            pair.generate()
        pair.stock.control()
        pair.until(lambda: pair.server.metric("seekserve_engine_restarts_total", MODEL) == 1)
        assert pair.generate().finish_reason == "length"
        pair.until(lambda: len(pair.stock.journal("start")) == len(pair.stock.journal("end")))
        pair.stock.control(fault="die")
        for _ in range(4):
            with pytest.raises(ServerError) as caught:
                pair.generate()
            assert "Stub" not in str(caught.value)
        assert pair.server.metric("seekserve_engine_restarts_total", MODEL) >= 2
    finally:
        pair.server.stop()
