"""A gRPC server that speaks Triton's protocol and answers by a script: a function from request to responses.

It records each request with the end of its call, so that a test can wait for a cancel to arrive instead of sleeping.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

Script = Callable[["Call"], Iterator[Any]]
PATIENCE_S = 30.0


@dataclass
class Call:
    """One ModelStreamInfer call as the server saw it."""

    context: Any
    request: Any = None
    is_half_closed: threading.Event = field(default_factory=threading.Event)
    is_ended: threading.Event = field(default_factory=threading.Event)
    was_cancelled: bool = False

    def inputs(self) -> dict[str, tuple[str, list[int], bytes]]:
        pairs = zip(self.request.inputs, self.request.raw_input_contents, strict=True)
        return {tensor.name: (tensor.datatype, list(tensor.shape), raw) for tensor, raw in pairs}

    def hang(self) -> None:
        """Answers nothing until the client is gone."""
        self.is_ended.wait(PATIENCE_S)

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.context.abort(code, details)


def text_tensor(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<I", len(data)) + data


def chunk(
    text: str | bytes | None = None,
    *,
    final: bool | None = None,
    finish: str | None = None,
    tokens: int | None = None,
    prompt_tokens: int | None = None,
    queue_ms: float | None = None,
    chat_state: str | None = None,
    token: str | None = None,
    served_by: str | None = None,
) -> Any:
    """One data response; `final` None leaves the flag out altogether."""
    message = service_pb2.ModelStreamInferResponse()
    response = message.infer_response
    response.model_name = "m"

    def put(name: str, datatype: str, raw: bytes) -> None:
        response.outputs.add(name=name, datatype=datatype, shape=[1, 1])
        response.raw_output_contents.append(raw)

    if text is not None:
        put("text_output", "BYTES", text_tensor(text))
    if chat_state is not None:
        put("chat_state", "BYTES", text_tensor(chat_state))
    if finish is not None:
        put("finish_reason", "BYTES", text_tensor(finish))
    if tokens is not None:
        put("completion_tokens", "INT32", struct.pack("<i", tokens))
    if prompt_tokens is not None:
        put("prompt_tokens", "INT32", struct.pack("<i", prompt_tokens))
    if queue_ms is not None:
        put("queue_ms", "FP32", struct.pack("<f", queue_ms))
    if token is not None:
        put("resume_token", "BYTES", text_tensor(token))
    if served_by is not None:
        put("served_by", "BYTES", text_tensor(served_by))
    if final is not None:
        response.parameters["triton_final_response"].bool_param = final
    return message


def empty_final() -> Any:
    return chunk(final=True)


def error(text: str) -> Any:
    return service_pb2.ModelStreamInferResponse(error_message=text)


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The servicer. `script` may be replaced between requests."""

    def __init__(self) -> None:
        self.script: Script = lambda _call: iter([chunk("ok", final=True, finish="stop")])
        self.calls: list[Call] = []
        self.models: list[str] = ["m"]
        self.index_is_open = True
        self.ready = True

    def ModelStreamInfer(self, request_iterator: Any, context: Any) -> Iterator[Any]:
        call = Call(context)
        self.calls.append(call)

        def ended() -> None:
            call.was_cancelled = context.code() is None
            call.is_ended.set()

        if not context.add_callback(ended):
            ended()
        call.request = next(request_iterator)
        threading.Thread(target=self._watch_half_close, args=(call, request_iterator), daemon=True).start()
        yield from self.script(call)
        context.set_code(grpc.StatusCode.OK)

    @staticmethod
    def _watch_half_close(call: Call, rest: Iterator[Any]) -> None:
        try:
            for _ in rest:
                return
        except Exception:  # the stream was cancelled, which is no half-close
            return
        call.is_half_closed.set()

    def ServerReady(self, _request: Any, _context: Any) -> Any:
        return service_pb2.ServerReadyResponse(ready=self.ready)

    def ModelReady(self, request: Any, _context: Any) -> Any:
        return service_pb2.ModelReadyResponse(ready=request.name in self.models)

    def ServerMetadata(self, _request: Any, _context: Any) -> Any:
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0", extensions=["classification"])

    def RepositoryIndex(self, _request: Any, context: Any) -> Any:
        if not self.index_is_open:
            context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted, expecting header 'x'")
        index = service_pb2.RepositoryIndexResponse()
        for name in self.models:
            index.models.add(name=name, version="1", state="READY")
        return index


class Running:
    """The fake behind a port on loopback."""

    def __init__(self) -> None:
        self.triton = FakeTriton()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8), options=[("grpc.so_reuseport", 0)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self.triton, self._server)
        self.url = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def drop(self) -> None:
        """Goes away with every connection, as a killed server does."""
        self._server.stop(None).wait(PATIENCE_S)

    @property
    def last(self) -> Call:
        return self.triton.calls[-1]
