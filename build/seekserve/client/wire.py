"""Requests and tensors to and from Triton's protobuf messages. Pure: no channel, no clock.

Names, types and ranks come from the contract's tables; scalars travel as `[1, 1]` and lists as `[1, n]`, as clients of
the stock ensemble send them. Plain `struct`, not numpy: tensors hold one element, and the cost is paid per token.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from tritonclient.grpc import service_pb2

from seekserve.client.request import GenerateRequest
from seekserve.errors import InputError, ProtocolError
from seekserve_backend.contract.tensors import INPUT_BY_NAME, INPUTS, TensorSpec

__all__ = ["FINAL_PARAMETER", "WANT_EMPTY_FINAL_PARAMETER", "encode", "read_number", "read_numbers", "read_text"]

FINAL_PARAMETER = "triton_final_response"
WANT_EMPTY_FINAL_PARAMETER = "triton_enable_empty_final_response"

_FIELD_OF_TENSOR = {"text_input": "prompt", "stop_words": "stop", "return_log_probs": "logprobs"}
_FIELDS = frozenset(field.name for field in fields(GenerateRequest))
_SENT = tuple((spec, name) for spec in INPUTS if (name := _FIELD_OF_TENSOR.get(spec.name, spec.name)) in _FIELDS)
"""Inputs that a request has a field for."""
# Never dropped in silence where a contract is older than this client.
_OPTIONAL_IN_CONTRACT = ("heartbeat_ms", "resumable", "resume_token", "resume_from_bytes", "resume_cancel")
_NUMBERS = {
    "INT32": ("<i", f"an integer from {-(2**31)} to {2**31 - 1}"),
    "INT64": ("<q", f"an integer from {-(2**63)} to {2**63 - 1}"),
    "UINT64": ("<Q", f"an integer from 0 to {2**64 - 1}"),
    "FP32": ("<f", "a number of single precision"),
}


def encode(request: GenerateRequest, model: str) -> service_pb2.ModelInferRequest:
    """Raises InputError naming every field that its tensor cannot hold."""
    message = service_pb2.ModelInferRequest(model_name=model, id=request.request_id or "")
    problems = [
        f"{name}: this version's contract has no such input"
        for name in _OPTIONAL_IN_CONTRACT
        if getattr(request, name) is not None and name not in INPUT_BY_NAME
    ]
    for spec, name in _SENT:
        value = getattr(request, name)
        if value is None or (name == "stop" and not value):
            continue
        try:
            content, count = _pack(spec, value)
        except (struct.error, OverflowError, TypeError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        message.inputs.add(name=spec.name, datatype=_wire_type(spec), shape=[1, count])
        message.raw_input_contents.append(content)
    for key, parameter in request.parameters.items():
        _set_parameter(message.parameters[key], key, parameter, problems)
    if problems:
        raise InputError("request: " + "; ".join(problems))
    # Without it a backend that sends FINAL apart from the data leaves the client waiting: tritonserver never forwards
    # an empty final response unasked.
    message.parameters[WANT_EMPTY_FINAL_PARAMETER].bool_param = True
    return message


def _wire_type(spec: TensorSpec) -> str:
    return "BYTES" if spec.data_type == "STRING" else spec.data_type


def _pack(spec: TensorSpec, value: Any) -> tuple[bytes, int]:
    if spec.name in ("messages", "chat_options"):
        value = json.dumps(value, ensure_ascii=False)
    items: Sequence[Any] = [value] if spec.dims == (1,) else list(value)
    return b"".join(_pack_item(spec.data_type, item) for item in items), len(items)


def _pack_item(data_type: str, item: Any) -> bytes:
    if data_type == "STRING":
        if not isinstance(item, str):
            raise TypeError(f"expected text, got {item!r}")
        data = item.encode("utf-8")
        return struct.pack("<I", len(data)) + data
    if data_type == "BOOL":
        if not isinstance(item, bool):
            raise TypeError(f"expected true or false, got {item!r}")
        return struct.pack("<?", item)
    code, wanted = _NUMBERS[data_type]
    if isinstance(item, bool):
        raise TypeError(f"expected {wanted}, got {item!r}")
    try:
        return struct.pack(code, item)
    except (struct.error, OverflowError):
        raise ValueError(f"expected {wanted}, got {item!r}") from None


def _set_parameter(slot: Any, key: str, value: object, problems: list[str]) -> None:
    if isinstance(value, bool):
        slot.bool_param = value
    elif isinstance(value, str):
        slot.string_param = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        slot.int64_param = value
    elif isinstance(value, float):
        slot.double_param = value
    else:
        problems.append(f"parameters: {key!r}: expected text, a 64-bit integer, a number or a boolean, got {value!r}")


def read_text(tensor: Any, raw: bytes) -> bytes:
    """All elements of a BYTES tensor, joined. They stay bytes: a character may be spread over two responses."""
    if tensor.datatype != "BYTES":
        raise ProtocolError(f"output {tensor.name}: expected BYTES, got {tensor.datatype} {list(tensor.shape)}")
    if len(raw) >= 4 and struct.unpack_from("<I", raw)[0] == len(raw) - 4:
        return raw[4:]
    return b"".join(_elements(tensor.name, raw))


def _elements(name: str, raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        size = struct.unpack_from("<I", raw, at)[0] if at + 4 <= len(raw) else len(raw)
        if at + 4 + size > len(raw):
            raise ProtocolError(f"output {name}: an element ends {at + 4 + size - len(raw)} bytes behind the tensor")
        yield raw[at + 4 : at + 4 + size]
        at += 4 + size


def read_number(tensor: Any, raw: bytes) -> float | int:
    """The single element of a numeric tensor."""
    entry = _NUMBERS.get(tensor.datatype)
    if entry is None or len(raw) != struct.calcsize(entry[0]):
        raise ProtocolError(
            f"output {tensor.name}: expected one number, got {len(raw)} bytes of {tensor.datatype} "
            f"of shape {list(tensor.shape)}"
        )
    number: float | int = struct.unpack(entry[0], raw)[0]
    return number


def read_numbers(tensor: Any, raw: bytes) -> tuple[float, ...]:
    """All elements of a numeric tensor, in order."""
    entry = _NUMBERS.get(tensor.datatype)
    if entry is None or len(raw) % struct.calcsize(entry[0]):
        raise ProtocolError(f"output {tensor.name}: {len(raw)} bytes are no row of {tensor.datatype}")
    return tuple(value for (value,) in struct.iter_unpack(entry[0], raw))
