"""Clients that know nothing of us: NVIDIA's own gRPC client with the stock ensemble's tensors, and plain HTTP."""

from __future__ import annotations

import json
import queue
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest
from tests.live.conftest import TINY, Server

grpcclient = pytest.importorskip("tritonclient.grpc")

PROMPT = "<｜begin▁of▁sentence｜><｜User｜>What is 37 + 48?<｜Assistant｜>"


def stock_stream(server: Server, model: str, tensors: dict[str, Any], **more: Any) -> list[Any]:
    """Sends rank-2 tensors as clients of the TensorRT-LLM ensemble do; returns every result or error."""
    got: queue.Queue[Any] = queue.Queue()
    kinds = {np.dtype(np.object_): "BYTES", np.dtype(np.int32): "INT32", np.dtype(np.bool_): "BOOL"}
    inputs = []
    for name, value in tensors.items():
        array = np.array([[value.encode() if isinstance(value, str) else value]])
        array = array.astype(
            np.object_ if isinstance(value, str) else np.bool_ if isinstance(value, bool) else np.int32
        )
        tensor = grpcclient.InferInput(name, array.shape, kinds[array.dtype])
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    with grpcclient.InferenceServerClient(server.grpc) as client:
        client.start_stream(callback=lambda result, error: got.put(error or result))
        client.async_stream_infer(model, inputs, **more)
        results = []
        while True:
            results.append(got.get(timeout=60))
            if isinstance(results[-1], Exception):
                break
            if results[-1].get_response().parameters["triton_final_response"].bool_param:
                break
        client.stop_stream()
    return results


def test_the_stock_minimum_streams_the_right_answer(server: Server) -> None:
    results = stock_stream(server, TINY, {"text_input": PROMPT, "max_tokens": 32, "stream": True})
    texts = [r.as_numpy("text_output").reshape(-1)[0].decode() for r in results]
    assert "85" in "".join(texts)
    assert len(texts) > 1


def test_without_stream_there_is_one_response(server: Server) -> None:
    results = stock_stream(server, TINY, {"text_input": PROMPT, "max_tokens": 32})
    assert len(results) == 1
    assert results[0].as_numpy("finish_reason").reshape(-1)[0] == b"stop"


def test_http_generate_stream_works(server: Server) -> None:
    body = json.dumps({"text_input": PROMPT, "max_tokens": 32, "stream": True}).encode()
    with urllib.request.urlopen(f"{server.http}/v2/models/{TINY}/generate_stream", data=body, timeout=60) as answer:
        events = [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    assert "85" in "".join(e["text_output"] for e in events)
    assert events[-1]["finish_reason"] == "stop"


def test_http_generate_works(server: Server) -> None:
    body = json.dumps({"text_input": PROMPT, "max_tokens": 32}).encode()
    with urllib.request.urlopen(f"{server.http}/v2/models/{TINY}/generate", data=body, timeout=60) as answer:
        assert "85" in json.loads(answer.read())["text_output"]


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"text_input": "a", "max_tokens": 0}, "max_tokens"),
        ({"text_input": "a", "beam_width": 4}, "beam_width"),
        ({"text_input": ""}, "text_input"),
        ({"max_tokens": 4}, "exactly one of"),
        ({"text_input": "a" * 30_000}, "too_large"),
        ({"text_input": "a" * 2_000_000}, "too_large"),
        ({"text_input": "a", "max_tokens": "x"}, "max_tokens"),
        ({"messages": "{"}, "messages"),
        ({"messages": '[{"role":"user","content":7}]'}, "messages"),
    ],
)
def test_malformed_requests_get_a_sentence_and_the_server_lives(
    server: Server, tensors: dict[str, Any], words: str
) -> None:
    (error,) = stock_stream(server, TINY, tensors)
    assert isinstance(error, Exception)
    assert words in str(error)
    assert stock_stream(server, "synthetic", {"text_input": "hi", "max_tokens": 1})


def test_a_batch_of_two_is_refused_by_name(server: Server) -> None:
    tensor = grpcclient.InferInput("text_input", [2, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[b"a"], [b"b"]], dtype=np.object_))
    got: queue.Queue[Any] = queue.Queue()
    with grpcclient.InferenceServerClient(server.grpc) as client:
        client.start_stream(callback=lambda result, error: got.put(error or result))
        client.async_stream_infer("synthetic", [tensor])
        error = got.get(timeout=30)
        client.stop_stream()
    assert "batch of 2" in str(error)
