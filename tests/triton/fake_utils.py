"""A stand-in for triton_python_backend_utils: records what was sent and reproduces the rules that a real sender
enforces."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        self._array = array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        return self._array


class TritonError:
    UNAVAILABLE = "UNAVAILABLE"
    INVALID_ARG = "INVALID_ARG"
    INTERNAL = "INTERNAL"
    CANCELLED = "CANCELLED"

    def __init__(self, message: str, code: str) -> None:
        self.message = message
        self.code = code


@dataclass
class InferenceResponse:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None


class Sender:
    """Raises on any send after FINAL, and calls `is_cancelled` after FINAL what it is on the real server: a crash."""

    def __init__(self) -> None:
        self.sent: list[InferenceResponse | None] = []
        self.is_final = False
        self.cancelled = False
        self.send_raises = 0

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if self.is_final:
            raise RuntimeError("Response sender has been closed")
        if self.send_raises:
            self.send_raises -= 1
            raise RuntimeError("shared memory is full")
        self.sent.append(response)
        self.is_final = flags == 1

    def is_cancelled(self) -> bool:
        assert not self.is_final, "the real server dies here"
        return self.cancelled


class Utils:
    Tensor = Tensor
    TritonError = TritonError
    InferenceResponse = InferenceResponse
    TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class Request:
    def __init__(self, tensors: dict[str, Any], request_id: str = "", parameters: dict[str, Any] | None = None) -> None:
        self._tensors = [Tensor(name, array) for name, array in tensors.items()]
        self._id = request_id
        self._parameters = parameters or {}

    def inputs(self) -> list[Tensor]:
        return self._tensors

    def request_id(self) -> str:
        return self._id

    def parameters(self) -> str:
        return json.dumps(self._parameters)


def text(value: str | bytes, *more: str) -> Any:
    values = [v.encode() if isinstance(v, str) else v for v in (value, *more)]
    return np.array([values], dtype=np.object_)


def number(value: float, kind: Any = np.int32) -> Any:
    return np.array([[value]], dtype=kind)
