"""Requests become exactly the tensors that the contract names, and only those that were asked for."""

from __future__ import annotations

import json
import struct
from dataclasses import fields
from typing import Any

import pytest
from fake_server import text_tensor
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from seekserve.client import GenerateRequest
from seekserve.client.wire import encode, read_number, read_text
from seekserve.errors import InputError, ProtocolError
from seekserve_backend.contract.tensors import INPUT_BY_NAME, Handling


def tensors(request: GenerateRequest) -> dict[str, tuple[str, list[int], bytes]]:
    message = encode(request, "m")
    pairs = zip(message.inputs, message.raw_input_contents, strict=True)
    return {tensor.name: (tensor.datatype, list(tensor.shape), raw) for tensor, raw in pairs}


def test_unset_fields_are_not_sent_at_all() -> None:
    assert tensors(GenerateRequest(prompt="hi")) == {
        "text_input": ("BYTES", [1, 1], text_tensor("hi")),
        "stream": ("BOOL", [1, 1], b"\x01"),
    }


FIELDS: list[tuple[dict[str, Any], str, str, list[int], bytes]] = [
    ({"max_tokens": 7}, "max_tokens", "INT32", [1, 1], struct.pack("<i", 7)),
    ({"max_tokens": 0}, "max_tokens", "INT32", [1, 1], struct.pack("<i", 0)),
    ({"temperature": 0}, "temperature", "FP32", [1, 1], struct.pack("<f", 0)),
    ({"temperature": 0.5}, "temperature", "FP32", [1, 1], struct.pack("<f", 0.5)),
    ({"top_k": -1}, "top_k", "INT32", [1, 1], struct.pack("<i", -1)),
    ({"top_p": 0.9}, "top_p", "FP32", [1, 1], struct.pack("<f", 0.9)),
    ({"seed": 2**64 - 1}, "seed", "UINT64", [1, 1], b"\xff" * 8),
    ({"repetition_penalty": 1.5}, "repetition_penalty", "FP32", [1, 1], struct.pack("<f", 1.5)),
    ({"presence_penalty": -1.0}, "presence_penalty", "FP32", [1, 1], struct.pack("<f", -1)),
    ({"frequency_penalty": 1.0}, "frequency_penalty", "FP32", [1, 1], struct.pack("<f", 1)),
    ({"min_tokens": 2}, "min_tokens", "INT32", [1, 1], struct.pack("<i", 2)),
    ({"stop": ["。", "b"]}, "stop_words", "BYTES", [1, 2], text_tensor("。") + text_tensor("b")),
    ({"request_class": "batch"}, "request_class", "BYTES", [1, 1], text_tensor("batch")),
    ({"tenant": ""}, "tenant", "BYTES", [1, 1], text_tensor("")),
    ({"deadline_ms": 500}, "deadline_ms", "INT32", [1, 1], struct.pack("<i", 500)),
    ({"stream": False}, "stream", "BOOL", [1, 1], b"\x00"),
]


@pytest.mark.parametrize(("given_fields", "name", "datatype", "shape", "raw"), FIELDS, ids=[str(f[0]) for f in FIELDS])
def test_each_field_becomes_its_tensor(
    given_fields: dict[str, Any], name: str, datatype: str, shape: list[int], raw: bytes
) -> None:
    assert tensors(GenerateRequest(prompt="hi", **given_fields))[name] == (datatype, shape, raw)


def test_an_empty_stop_list_asks_for_nothing() -> None:
    assert "stop_words" not in tensors(GenerateRequest(prompt="hi", stop=[]))


def test_token_ids_travel_as_one_row() -> None:
    sent = tensors(GenerateRequest(input_ids=[0, 5, 9]))
    assert sent["input_ids"] == ("INT32", [1, 3], struct.pack("<3i", 0, 5, 9))
    assert "text_input" not in sent


def test_messages_travel_as_one_json_text() -> None:
    messages = [{"role": "user", "content": "37 + 48 是多少? 😀"}]
    _, shape, raw = tensors(GenerateRequest(messages=messages))["messages"]
    assert shape == [1, 1]
    assert json.loads(raw[4:]) == messages


def test_chat_options_travel_beside_messages() -> None:
    options = {"thinking": False, "tools": []}
    _, shape, raw = tensors(GenerateRequest(messages=[], chat_options=options))["chat_options"]
    assert shape == [1, 1]
    assert json.loads(raw[4:]) == options
    with pytest.raises(InputError, match="chat_options need messages"):
        GenerateRequest(prompt="x", chat_options=options)


def test_the_empty_final_response_is_always_asked_for() -> None:
    assert encode(GenerateRequest(prompt="x"), "m").parameters["triton_enable_empty_final_response"].bool_param


def test_id_model_and_parameters_are_carried() -> None:
    request = GenerateRequest(prompt="x", request_id="r7", parameters={"a": "t", "b": 3, "c": 0.5, "d": True})
    message = encode(request, "deepseek")
    assert (message.id, message.model_name) == ("r7", "deepseek")
    sent = message.parameters
    assert (sent["a"].string_param, sent["b"].int64_param, sent["c"].double_param) == ("t", 3, 0.5)
    assert sent["d"].bool_param is True


def test_every_tensor_that_this_backend_uses_can_be_sent() -> None:
    known = {field.name for field in fields(GenerateRequest)} | {"text_input", "stop_words", "return_log_probs"}
    # What a typed client need not offer: other spellings of what it does, and output switches of the stock ensemble.
    left_out = {"end_id", "return_num_input_tokens", "return_num_output_tokens"}
    used = {name for name, spec in INPUT_BY_NAME.items() if spec.handling is Handling.USED}
    assert used - known == left_out


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 2**31}, "max_tokens: expected an integer from -2147483648 to 2147483647, got 2147483648"),
    ({"max_tokens": 1.5}, "max_tokens: expected an integer"),
    ({"max_tokens": True}, "max_tokens: expected an integer"),
    ({"seed": -1}, "seed: expected an integer from 0 to 18446744073709551615, got -1"),
    ({"temperature": "hot"}, "temperature: expected a number"),
    ({"temperature": 1e300}, "temperature: expected a number of single precision"),
    ({"stop": [3]}, "stop: expected text, got 3"),
    ({"stop": "abc"}, "stop must be a list of texts"),
    ({"tenant": b"x"}, "tenant: expected text"),
    ({"tenant": "\ud800"}, "tenant: "),
    ({"stream": 1}, "stream: expected true or false"),
    ({"parameters": {"triton_x": 1}}, "reserved"),
    ({"parameters": {"x": None}}, "'x'"),
    ({"parameters": {"x": 2**63}}, "'x'"),
    ({"input_ids": [1]}, "got prompt and input_ids"),
]


@pytest.mark.parametrize(("bad_fields", "says_so"), BAD, ids=[str(b[0]) for b in BAD])
def test_what_a_tensor_cannot_hold_is_bad_input(bad_fields: dict[str, Any], says_so: str) -> None:
    with pytest.raises(InputError) as caught:
        encode(GenerateRequest(prompt="hi", **bad_fields), "m")
    assert says_so in str(caught.value)


def test_all_bad_fields_are_reported_together() -> None:
    with pytest.raises(InputError) as caught:
        encode(GenerateRequest(prompt="hi", seed=-1, top_k=1 << 40), "m")
    assert "seed" in str(caught.value)
    assert "top_k" in str(caught.value)


def test_a_request_without_a_prompt_is_bad_input() -> None:
    with pytest.raises(InputError, match="got none of them"):
        GenerateRequest()


def output(datatype: str, name: str = "t") -> Any:
    return service_pb2.ModelInferResponse.InferOutputTensor(name=name, datatype=datatype, shape=[1, 1])


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_text_of_several_elements_is_joined(elements: list[bytes]) -> None:
    raw = b"".join(text_tensor(element) for element in elements)
    assert read_text(output("BYTES"), raw) == b"".join(elements)


@given(st.binary(max_size=40))
def test_no_bytes_make_the_reader_fail_otherwise_than_with_a_protocol_error(raw: bytes) -> None:
    for read, datatype in ((read_text, "BYTES"), (read_number, "INT32"), (read_number, "FP32")):
        try:
            read(output(datatype), raw)
        except ProtocolError as error:
            assert "output t" in str(error)  # noqa: PT017


@pytest.mark.parametrize(("read", "datatype"), [(read_text, "INT32"), (read_number, "BYTES"), (read_number, "FP64")])
def test_another_datatype_than_agreed_is_a_protocol_error(read: Any, datatype: str) -> None:
    with pytest.raises(ProtocolError, match=datatype):
        read(output(datatype), b"\0\0\0\0")
