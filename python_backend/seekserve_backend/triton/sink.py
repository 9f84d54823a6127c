"""One client's end of a decoupled request: tensors out, errors out, and the question whether it is still there.

Two rules learnt from crashes of the whole server (Triton 24.10): `is_cancelled()` is never called after or beside
FINAL, and FINAL goes out exactly once, inline with the last data. A lock and a closed flag keep both.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from ..answers import Chunk
from ..contract.refusal import ErrorLine
from ..contract.tensors import OUTPUTS
from .wire import response_values

__all__ = ["TritonSink"]

_log = logging.getLogger(__name__)
_TYPE_BY_NAME = {spec.name: spec.data_type for spec in OUTPUTS}


class TritonSink:
    """Implements the outbox's Sink over a `pb_utils.InferenceResponseSender`."""

    __slots__ = ("_lock", "_sender", "_utils")

    def __init__(self, sender: Any, utils: Any) -> None:
        self._sender = sender
        self._utils = utils
        self._lock = threading.Lock()

    def send(self, chunk: Chunk) -> None:
        tensors = [self._tensor(name, value) for name, value in response_values(chunk)]
        self._deliver(self._utils.InferenceResponse(output_tensors=tensors), is_last=chunk.finish_reason is not None)

    def error(self, line: ErrorLine) -> None:
        utils = self._utils
        code = getattr(utils.TritonError, line.code.triton_code)
        self._deliver(utils.InferenceResponse(error=utils.TritonError(line.to_line(), code)), is_last=True)

    def is_cancelled(self) -> bool:
        with self._lock:
            return self._sender is not None and bool(self._sender.is_cancelled())

    def _deliver(self, response: Any, *, is_last: bool) -> None:
        with self._lock:
            sender = self._sender
            if sender is None:
                return
            if not is_last:
                sender.send(response)
                return
            # Closed before the call: whatever the send does, nobody may ask this sender anything again.
            self._sender = None
            try:
                sender.send(response, flags=self._utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            except Exception:
                _log.exception("the last response could not be sent; closing the stream without it")
                sender.send(flags=self._utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _tensor(self, name: str, value: object) -> Any:
        import numpy as np

        data_type = _TYPE_BY_NAME[name]
        if data_type == "STRING":
            array = np.array([[str(value).encode("utf-8")]], dtype=np.object_)
        else:
            array = np.array([[value]], dtype=np.float32 if data_type == "FP32" else np.int32)
        return self._utils.Tensor(name, array)
