"""Carries the calls of the stock engine over gRPC to the server this backend runs in.

It exists because BLS streams side by side can stop a whole Python stub (see `bls.py`): here nothing of the stub is
shared, and error codes are beside the point, since only the text is read. A stop goes as a request of its own, so that
the stream's end is the stock model's; only where that is without effect is the call itself given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..engines.triton_bls.port import InputTensor, StockCall, StockResponse

__all__ = ["CHANNEL_OPTIONS", "STREAM_METHOD", "GrpcPort"]

STREAM_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_NUMPY_TYPES = {"INT32": "<i4", "INT64": "<i8", "UINT64": "<u8", "FP32": "<f4", "BOOL": "?"}
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcPort:
    """A `StockPort`."""

    def __init__(self, address: str, model: str) -> None:
        import grpc
        import numpy
        from tritonclient.grpc import service_pb2

        self._numpy = numpy
        self._messages = service_pb2
        self._model = model
        self._infer = grpc.insecure_channel(address, options=CHANNEL_OPTIONS).stream_stream(
            STREAM_METHOD,
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )

    def open(self, call: StockCall) -> _GrpcStream:
        request = self._messages.ModelInferRequest(model_name=self._model, id=call.request_id)
        if call.timeout_us:
            request.parameters["timeout"].int64_param = call.timeout_us
        for tensor in call.inputs:
            request.inputs.add(name=tensor.name, datatype=tensor.data_type, shape=tensor.shape)
            request.raw_input_contents.append(self._bytes(tensor))
        for name in call.outputs:
            request.outputs.add(name=name)
        return _GrpcStream(self._infer(iter((request,)), wait_for_ready=True), self._values)

    def _bytes(self, tensor: InputTensor) -> bytes:
        data: bytes = self._numpy.array(tensor.values, dtype=_NUMPY_TYPES[tensor.data_type]).tobytes()
        return data

    def _values(self, response: Any) -> dict[str, Any]:
        return {
            output.name: self._numpy.frombuffer(raw, dtype=_NUMPY_TYPES[output.datatype])
            .reshape(tuple(output.shape))
            .tolist()
            for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
        }


class _GrpcStream:
    def __init__(self, call: Any, values: Any) -> None:
        self._call = call
        self._values = values
        self._was_asked = False

    def __iter__(self) -> Iterator[StockResponse]:
        for message in self._call:
            if message.error_message:
                yield StockResponse(values={}, error=message.error_message)
            else:
                yield StockResponse(values=self._values(message.infer_response))

    def cancel(self) -> bool:
        """True from the second time on: the first leaves it to a stop."""
        if self._was_asked:
            self._call.cancel()
        was_asked, self._was_asked = self._was_asked, True
        return was_asked
