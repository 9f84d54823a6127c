"""One client's end of a decoupled request: tensors out, errors out, and the question whether it is still there.

Three rules learnt from crashes of the whole server (Triton 24.10): `is_cancelled()` is never called after or beside
FINAL; FINAL goes out exactly once, inline with the last data; and FINAL keeps a distance from the response before it.
A lock and a closed flag keep the first two, `hold_s` tells the outbox about the third.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..answers import Chunk
from ..contract.refusal import ErrorCode, ErrorLine
from ..contract.tensors import OUTPUTS
from .wire import response_values

__all__ = ["TritonSink"]

_log = logging.getLogger(__name__)
_TYPE_BY_NAME = {spec.name: spec.data_type for spec in OUTPUTS}
_NUMPY_TYPES = {"STRING": "O", "INT32": "i4", "FP32": "f4"}
# A client that cancels while the response before is still being written, and whose FINAL comes in that moment, makes
# the gRPC front end release the stream's state twice: the server dies, or stands still for good. A write takes well
# under a millisecond; an engine with a model seldom steps faster than this, so only toys wait.
_QUIET_S = 0.002


class TritonSink:
    """Implements the outbox's Sink over a `pb_utils.InferenceResponseSender`."""

    __slots__ = ("_clock", "_empty", "_has_begun", "_is_broken", "_lock", "_sender", "_sent_s", "_utils")

    def __init__(self, sender: Any, utils: Any, clock: Callable[[], float] = time.monotonic) -> None:
        import numpy

        self._empty = numpy.empty
        self._sender = sender
        self._utils = utils
        self._lock = threading.Lock()
        self._is_broken = False
        self._has_begun = False
        self._clock = clock
        self._sent_s: float | None = None

    def send(self, chunk: Chunk) -> None:
        """All sends of one request come from one thread, its lane's."""
        if chunk.is_heartbeat and self._has_begun:
            return
        self._has_begun = not chunk.is_heartbeat
        self._deliver(lambda: self._response(chunk), is_last=chunk.finish_reason is not None)

    def error(self, line: ErrorLine) -> None:
        self._deliver(lambda: self._error(line), is_last=True)

    def is_cancelled(self) -> bool:
        """Also true for a stream that had to be closed: what still runs for it is of no use."""
        with self._lock:
            if self._sender is None:
                return self._is_broken
            return bool(self._sender.is_cancelled())

    def hold_s(self) -> float:
        return 0.0 if self._sent_s is None else max(0.0, self._sent_s + _QUIET_S - self._clock())

    def _deliver(self, build: Callable[[], Any], *, is_last: bool) -> None:
        with self._lock:
            sender = self._sender
            if sender is None:
                return
            try:
                response = build()
                if is_last:
                    # Closed before the call: whatever the send does, nobody may ask this sender anything again.
                    self._sender = None
                    sender.send(response, flags=self._utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                else:
                    sender.send(response)
                    self._sent_s = self._clock()
            except Exception:
                _log.exception("a response could not be sent; the stream is closed")
                self._sender, self._is_broken = None, True
                self._close(sender)

    def _close(self, sender: Any) -> None:
        """Ends a stream with a hole in it: with an error if that can still be sent, else with the bare final flag."""
        final = self._utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        line = ErrorLine(code=ErrorCode.FAILED, reason="a response was lost inside the server; the stream ends here")
        try:
            sender.send(self._error(line), flags=final)
        except Exception:
            try:
                sender.send(flags=final)
            except Exception:
                _log.exception("not even the end of the stream could be sent")

    def _response(self, chunk: Chunk) -> Any:
        tensors = [self._tensor(name, value) for name, value in response_values(chunk)]
        return self._utils.InferenceResponse(output_tensors=tensors)

    def _error(self, line: ErrorLine) -> Any:
        utils = self._utils
        code = getattr(utils.TritonError, line.code.triton_code)
        return utils.InferenceResponse(error=utils.TritonError(line.to_line(), code))

    def _tensor(self, name: str, value: object) -> Any:
        """[1, 1], or [1, 1, n] for a row, filled in place: numpy's guess at a shape costs more than the rest."""
        data_type = _NUMPY_TYPES[_TYPE_BY_NAME[name]]
        if isinstance(value, tuple):
            array = self._empty((1, 1, len(value)), data_type)
            array[0, 0] = value
        else:
            array = self._empty((1, 1), data_type)
            array[0, 0] = value.encode("utf-8") if isinstance(value, str) else value
        return self._utils.Tensor(name, array)
