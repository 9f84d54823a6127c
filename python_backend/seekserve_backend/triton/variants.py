"""Other models of this server that can answer requests of this one, and the calls to them.

Over the server's own gRPC door, as in `loopback` and for its reasons: a cancel reaches the other model, its refusal
keeps its line of JSON, and nothing of the stub is shared. Only models of this backend qualify, since they take the very
same tensors; a model is known by its folder in the repository, and can be used once the server says that it is ready.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..answers import Chunk, Inbound
from ..contract.refusal import ErrorCode, ErrorLine
from ..contract.tensors import INPUT_BY_NAME
from ..engines.port import Sampling
from .loopback import CHANNEL_OPTIONS, STREAM_METHOD
from .wire import ROUTED_PARAMETER

__all__ = ["GrpcVariants", "known_variants"]

_log = logging.getLogger(__name__)
_READY_METHOD = "/inference.GRPCInferenceService/ModelReady"
_READY_TIMEOUT_S = 1.0
_OURS = re.compile(r'^\s*backend\s*:\s*"seekserve"', re.MULTILINE)
_FORMATS = {"INT32": "<i", "UINT64": "<Q", "FP32": "<f", "BOOL": "<?"}


def known_variants(repository: Path, own: str) -> frozenset[str]:
    """Models of this backend beside `own` in the repository, loaded or not."""
    found = set()
    for config in repository.glob("*/config.pbtxt"):
        try:
            is_ours = _OURS.search(config.read_text(encoding="utf-8")) is not None
        except (OSError, UnicodeDecodeError):
            continue
        if is_ours and config.parent.name != own:
            found.add(config.parent.name)
    return frozenset(found)


class GrpcVariants:
    """A `VariantPort`. The door is opened when the first call is made: it is shut while the server loads its models."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._calls: tuple[Any, Any, Any] | None = None

    def ready(self, models: Collection[str]) -> frozenset[str]:
        """Of these, the ones that answer now. Blocks for a second at most, for each that is not there."""
        return frozenset(model for model in sorted(models) if self._is_ready(model))

    def _is_ready(self, model: str) -> bool:
        messages, _, ask = self._open()
        try:
            return bool(ask(messages.ModelReadyRequest(name=model), timeout=_READY_TIMEOUT_S).ready)
        except Exception as error:  # grpc's own kinds, which are not imported here
            _log.debug("whether model %s is ready cannot be told: %s", model, error)
            return False

    def open(self, model: str, inbound: Inbound, *, max_tokens: int, deadline_ms: int | None) -> _Stream:
        messages, infer, _ = self._open()
        request = messages.ModelInferRequest(model_name=model, id=inbound.client_id)
        for name, values in _inputs(inbound, max_tokens, deadline_ms):
            spec = INPUT_BY_NAME[name]
            kind = "BYTES" if spec.data_type == "STRING" else spec.data_type
            request.inputs.add(name=name, datatype=kind, shape=[1, len(values)])
            request.raw_input_contents.append(b"".join(_packed(spec.data_type, value) for value in values))
        request.parameters[ROUTED_PARAMETER].bool_param = True
        for name, text in {"endpoint": inbound.endpoint, **inbound.headers}.items():
            if text:
                request.parameters[name].string_param = text
        return _Stream(infer(iter((request,))), model)

    def _open(self) -> tuple[Any, Any, Any]:
        if self._calls is None:
            import grpc
            from tritonclient.grpc import service_pb2

            channel = grpc.insecure_channel(self._address, options=CHANNEL_OPTIONS)
            infer = channel.stream_stream(
                STREAM_METHOD,
                request_serializer=service_pb2.ModelInferRequest.SerializeToString,
                response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
            )
            ask = channel.unary_unary(
                _READY_METHOD,
                request_serializer=service_pb2.ModelReadyRequest.SerializeToString,
                response_deserializer=service_pb2.ModelReadyResponse.FromString,
            )
            self._calls = (service_pb2, infer, ask)
        return self._calls


class _Stream:
    """A `VariantStream`."""

    def __init__(self, call: Any, model: str) -> None:
        self._call = call
        self._model = model

    def __iter__(self) -> Iterator[Chunk | ErrorLine]:
        is_first = True
        for message in self._call:
            if message.error_message:
                line = ErrorLine.from_message(message.error_message)
                yield line or ErrorLine(code=ErrorCode.FAILED, reason=message.error_message[:500])
                continue
            values = _outputs(message.infer_response)
            if values:  # a bare end of the stream has none
                yield _chunk(values, self._model, is_first=is_first)
                is_first = False

    def cancel(self) -> None:
        self._call.cancel()


def _inputs(inbound: Inbound, max_tokens: int, deadline_ms: int | None) -> Iterator[tuple[str, Sequence[Any]]]:
    """What the client asked for, within what has been settled here: only what says something."""
    for name, raw in (("text_input", inbound.text), ("messages", inbound.messages)):
        if raw is not None:
            yield name, (raw,)
    if inbound.input_ids is not None:
        yield "input_ids", inbound.input_ids
    yield "max_tokens", (max_tokens,)
    yield "stream", (inbound.stream,)
    if inbound.stop_words:
        yield "stop_words", tuple(word.encode() for word in inbound.stop_words)
    neutral, guide = Sampling(), inbound.sampling.guide
    for field in dataclasses.fields(Sampling):
        if field.name == "guide":
            continue
        value = getattr(inbound.sampling, field.name)
        if field.name in inbound.sampling_given or value != getattr(neutral, field.name):
            yield field.name, (value,)
    optional = {
        "chat_options": inbound.chat_options,
        "end_id": inbound.end_id,
        "guided_decoding_guide_type": None if guide is None else guide.kind.encode(),
        "guided_decoding_guide": None if guide is None else guide.text.encode() or None,
        "exclude_input_in_output": False if inbound.echo_prompt else None,
        "return_num_input_tokens": True if inbound.wants_num_input_tokens else None,
        "return_num_output_tokens": True if inbound.wants_num_output_tokens else None,
        "return_log_probs": True if inbound.wants_logprobs else None,
        "beam_width": inbound.beam_width if inbound.beam_width > 1 else None,
        "request_class": None if inbound.request_class is None else inbound.request_class.encode(),
        "tenant": inbound.tenant.encode() or None,
        "deadline_ms": deadline_ms,
    }
    yield from ((name, (value,)) for name, value in optional.items() if value is not None)


def _packed(data_type: str, value: Any) -> bytes:
    if data_type == "STRING":
        return struct.pack("<I", len(value)) + bytes(value)
    return struct.pack(_FORMATS[data_type], value)


def _outputs(response: Any) -> dict[str, tuple[Any, ...]]:
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    return {output.name: _unpacked(output.datatype, raw) for output, raw in pairs}


def _unpacked(data_type: str, raw: bytes) -> tuple[Any, ...]:
    if data_type != "BYTES":
        return tuple(value for (value,) in struct.iter_unpack(_FORMATS[data_type], raw))
    out, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        out.append(raw[at + 4 : at + 4 + size].decode("utf-8", "replace"))
        at += 4 + size
    return tuple(out)


def _chunk(values: dict[str, tuple[Any, ...]], model: str, *, is_first: bool) -> Chunk:
    def one(name: str) -> Any:
        found = values.get(name)
        return found[0] if found else None

    finish_reason = one("finish_reason")
    return Chunk(
        text="".join(values.get("text_output", ())),
        completion_tokens=one("completion_tokens") or 0,
        finish_reason=finish_reason,
        prompt_tokens=one("prompt_tokens"),
        queue_ms=one("queue_ms"),
        num_input_tokens=one("num_input_tokens"),
        num_output_tokens=one("num_output_tokens"),
        logprobs=values.get("output_log_probs"),
        cumulative_logprob=one("cum_log_probs"),
        chat_state=one("chat_state"),
        served_by=(one("served_by") or model) if is_first or finish_reason is not None else None,
    )
