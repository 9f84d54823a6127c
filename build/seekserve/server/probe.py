"""One tiny generation over gRPC streaming, as a client would do it, within a deadline."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

from seekserve_backend.contract.refusal import ErrorCode, ErrorLine

__all__ = ["PROBE_PARAMETER", "ProbeFailed", "generate_once"]

PROBE_PARAMETER = "seekserve_probe"
_FINAL_CODES = (ErrorCode.INVALID, ErrorCode.TOO_LARGE, ErrorCode.FAILED)


class ProbeFailed(Exception):
    """`can_pass_later`: whether trying again makes sense while the server starts."""

    def __init__(self, message: str, *, can_pass_later: bool) -> None:
        super().__init__(message)
        self.can_pass_later = can_pass_later


def generate_once(
    address: str, model: str, probe_key: str, *, timeout_s: float, ended: Callable[[], str | None]
) -> None:
    """Returns after the terminal response; a missing one fails too, since every client would hang on it.

    `ended` is asked while waiting: a sentence means that no answer can come any more.
    """
    from tritonclient.grpc import InferenceServerClient
    from tritonclient.utils import InferenceServerException

    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = InferenceServerClient(address)
    try:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer(
            model, _inputs(), request_id="readiness-probe", parameters={PROBE_PARAMETER: probe_key}
        )
        _await_final(answers, time.monotonic() + timeout_s, ended)
    except InferenceServerException as error:
        raise ProbeFailed(error.message() or repr(error), can_pass_later=True) from error
    finally:
        client.stop_stream(cancel_requests=True)
        client.close()


def _inputs() -> list[Any]:
    import numpy
    from tritonclient.grpc import InferInput

    inputs = []
    for name, value in (
        ("text_input", numpy.array([[b"1"]], dtype=numpy.object_)),
        ("max_tokens", numpy.array([[1]], dtype=numpy.int32)),
        ("stream", numpy.array([[True]], dtype=numpy.bool_)),
    ):
        kind = {"O": "BYTES", "i": "INT32", "b": "BOOL"}[value.dtype.kind]
        tensor = InferInput(name, [1, 1], kind)
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)
    return inputs


def _await_final(answers: queue.Queue[tuple[Any, Any]], deadline_s: float, ended: Callable[[], str | None]) -> None:
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise ProbeFailed("no final response within the deadline", can_pass_later=True)
        try:
            result, error = answers.get(timeout=min(left_s, 0.5))
        except queue.Empty:
            reason = ended()
            if reason is not None:
                raise ProbeFailed(reason, can_pass_later=False) from None
            continue
        if error is not None:
            raise _failure(error.message() or repr(error))
        if result.get_response().parameters["triton_final_response"].bool_param:
            return


def _failure(message: str) -> ProbeFailed:
    line = ErrorLine.from_message(message)
    if line is None:
        return ProbeFailed(message, can_pass_later=True)
    return ProbeFailed(f"{line.code.value}: {line.reason}", can_pass_later=line.code not in _FINAL_CODES)
