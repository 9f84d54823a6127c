"""What is sent to another model of the server, and what is read from its answers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.triton.fake_utils import Request
from tritonclient.grpc import service_pb2

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.engines.port import Sampling
from seekserve_backend.triton.variants import GrpcVariants, known_variants
from seekserve_backend.triton.wire import read_request

_NUMPY = {"INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}


class Door:
    """In the place of the channel: keeps what is sent, and answers with what it is given."""

    def __init__(self, *answers: Any) -> None:
        self.sent: list[Any] = []
        self.answers = answers

    def __call__(self, requests: Any) -> Any:
        self.sent += list(requests)
        return iter(self.answers)


def variants(door: Door) -> GrpcVariants:
    made = GrpcVariants("nowhere:1")
    made._calls = (service_pb2, door, None)
    return made


def as_triton_hands_it_over(message: Any) -> Request:
    tensors: dict[str, Any] = {}
    for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        if tensor.datatype == "BYTES":
            words, at = [], 0
            while at < len(raw):
                size = int.from_bytes(raw[at : at + 4], "little")
                words.append(raw[at + 4 : at + 4 + size])
                at += 4 + size
            tensors[tensor.name] = np.array([words], dtype=np.object_)
        else:
            tensors[tensor.name] = np.frombuffer(raw, _NUMPY[tensor.datatype]).reshape(tuple(tensor.shape))
    parameters = {
        name: value.bool_param if value.WhichOneof("parameter_choice") == "bool_param" else value.string_param
        for name, value in message.parameters.items()
    }
    return Request(tensors, message.id, parameters)


@pytest.mark.parametrize(
    "asked",
    [
        Inbound(text=b"hi", max_tokens=3),
        Inbound(
            client_id="c-1",
            messages=json.dumps([{"role": "user", "content": "ü"}]).encode(),
            max_tokens=3,
            stream=True,
            stop_words=("a", "bü"),
            end_id=5,
            sampling=Sampling(
                temperature=0.5, top_k=3, top_p=0.75, seed=2**64 - 1, frequency_penalty=0.5, min_tokens=2
            ),
            sampling_given=frozenset({"temperature", "top_k", "top_p", "frequency_penalty", "min_tokens"}),
            echo_prompt=True,
            wants_num_input_tokens=True,
            wants_num_output_tokens=True,
            wants_logprobs=True,
            beam_width=4,
            request_class="chat",
            tenant="t",
            deadline_ms=900,
            endpoint="/v1/chat/completions",
            headers={"x-request-type": "offline"},
        ),
        Inbound(input_ids=(1, 2, 70000), max_tokens=3),
    ],
)
def test_the_other_model_reads_what_the_client_asked_for(asked: Inbound) -> None:
    door = Door()
    variants(door).open("int8", asked, max_tokens=3, deadline_ms=asked.deadline_ms)
    (message,) = door.sent
    assert message.model_name == "int8"
    assert read_request(as_triton_hands_it_over(message), probe_key=None) == dataclasses.replace(asked, is_routed=True)


def response(**outputs: Any) -> Any:
    made = service_pb2.ModelStreamInferResponse()
    for name, value in outputs.items():
        if isinstance(value, str):
            data = value.encode()
            kind, raw = "BYTES", len(data).to_bytes(4, "little") + data
        else:
            array = np.array(value, dtype=np.int32 if isinstance(value, int) else np.float32)
            kind, raw = "INT32" if isinstance(value, int) else "FP32", array.tobytes()
        made.infer_response.outputs.add(name=name, datatype=kind, shape=[1, 1])
        made.infer_response.raw_output_contents.append(raw)
    return made


def test_its_answers_are_read_and_say_who_gave_them() -> None:
    failed = service_pb2.ModelStreamInferResponse(error_message="Stub process is not healthy")
    line = ErrorLine(code=ErrorCode.OVERLOADED, reason="full", retry_after_ms=7, request_id="r")
    refused = service_pb2.ModelStreamInferResponse(error_message="in ensemble: " + line.to_line())
    door = Door(
        response(text_output="é", queue_ms=1.5),
        response(text_output="b", output_log_probs=[-0.5, -1.0], cum_log_probs=-1.5),
        response(text_output="", finish_reason="stop", prompt_tokens=4, completion_tokens=3, queue_ms=1.5),
        response(),
        refused,
        failed,
    )
    stream = variants(door).open("int8", Inbound(text=b"x"), max_tokens=1, deadline_ms=None)
    assert list(stream) == [
        Chunk(text="é", completion_tokens=0, queue_ms=1.5, served_by="int8"),
        Chunk(text="b", completion_tokens=0, logprobs=(-0.5, -1.0), cumulative_logprob=-1.5),
        Chunk(text="", completion_tokens=3, finish_reason="stop", prompt_tokens=4, queue_ms=1.5, served_by="int8"),
        line,
        ErrorLine(code=ErrorCode.FAILED, reason="Stub process is not healthy"),
    ]


def test_only_models_of_this_backend_beside_this_one_are_known(tmp_path: Path) -> None:
    for name, backend in (("own", "seekserve"), ("int8", "seekserve"), ("stock", "tensorrtllm")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "{backend}"\n')
    (tmp_path / "empty").mkdir()
    assert known_variants(tmp_path, "own") == {"int8"}


def test_a_door_that_nobody_opens_makes_nobody_ready() -> None:
    def ask(request: Any, timeout: float) -> Any:
        assert timeout > 0
        if request.name == "gone":
            raise ConnectionError("refused")
        return service_pb2.ModelReadyResponse(ready=request.name == "int8")

    made = GrpcVariants("nowhere:1")
    made._calls = (service_pb2, None, ask)
    assert made.ready(("int8", "loading", "gone")) == {"int8"}
