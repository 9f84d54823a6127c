"""Everything that can go wrong with a request, as what HTTP says of it: status, OpenAI's error object, Retry-After.

Load is 429, not serving is 503, a deadline that passed is 504, and each is counted under its own kind. What a server
says in its own words is not handed on: it may hold paths and traces; the log has it under the request's id.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from seekserve.errors import (
    InputError,
    NotAccepted,
    ProtocolError,
    Refused,
    RequestFailed,
    SeekserveError,
    ServerError,
    TimedOut,
)

__all__ = ["Problem", "ProblemError", "from_error", "is_worth_another_backend"]

_RETRY_WHEN_DOWN_MS = 1000
# Tensor names of the backend where the OpenAI body calls the same thing otherwise.
_PARAM_OF_FIELD = {
    "text_input": "prompt",
    "input_ids": "prompt",
    "stop_words": "stop",
    "return_log_probs": "logprobs",
    "guided_decoding_guide_type": "response_format",
    "guided_decoding_guide": "response_format",
    "chat_options": "chat_template_kwargs",
    "deadline_ms": "x-deadline-ms",
    "request_class": "x-request-type",
    "heartbeat_ms": "x-heartbeat-ms",
    "resume_token": "x-resume-token",
    "resume_from_bytes": "last-event-id",
    "tenant": "x-tenant",
}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    status: int
    code: str
    """Machine-readable; the backend's own code where it said one."""
    message: str
    """The reason for people, with its numbers."""
    kind: str
    """What it is counted as: invalid, auth, rate, load, not_serving, expired, failed, left."""
    param: str | None = None
    retry_after_ms: int | None = None

    def body(self, request_id: str) -> bytes:
        error: dict[str, object] = {
            "message": self.message,
            "type": _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error"),
            "param": self.param,
            "code": self.code,
            "request_id": request_id,
        }
        if self.retry_after_ms is not None:
            error["retry_after_ms"] = self.retry_after_ms
        return json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "replace")

    def headers(self) -> Mapping[str, str]:
        """Retry-After has whole seconds; `retry-after-ms` is what OpenAI's clients look at first."""
        if self.retry_after_ms is None:
            return {}
        return {
            "retry-after": str(max(1, math.ceil(self.retry_after_ms / 1000))),
            "retry-after-ms": str(self.retry_after_ms),
        }


class ProblemError(Exception):
    """Ends a request with its problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def is_worth_another_backend(error: SeekserveError) -> bool:
    """True where this backend would not or could not take the request; never where the request is at fault."""
    if isinstance(error, Refused):
        return error.code in ("overloaded", "not_serving")
    return type(error) is ServerError


def from_error(error: SeekserveError) -> Problem:
    if isinstance(error, Refused):
        return _refused(error)
    if isinstance(error, NotAccepted):
        field = error.field
        param = None if field is None else _PARAM_OF_FIELD.get(field, field)
        reason = error.reason
        if field is not None and param is not None and reason.startswith(f"{field}: "):
            reason = param + reason[len(field) :]  # the name that the caller knows
        return Problem(status=400, code=error.code, message=reason, kind="invalid", param=param)
    if isinstance(error, InputError):
        return Problem(status=400, code="invalid", message=error.message, kind="invalid")
    if isinstance(error, TimedOut):
        reason = "the server sent nothing for too long; the request was cancelled"
        return Problem(status=504, code="timed_out", message=reason, kind="failed")
    if isinstance(error, ProtocolError):
        reason = "the server's answer is not in the agreed form; the gateway's log has the details"
        return Problem(status=502, code="protocol", message=reason, kind="failed")
    if isinstance(error, RequestFailed):
        return _failed(error)
    reason = "no server answers; the gateway's log has the details"
    return Problem(
        status=503, code="not_serving", message=reason, kind="not_serving", retry_after_ms=_RETRY_WHEN_DOWN_MS
    )


def _refused(error: Refused) -> Problem:
    status, kind = {"overloaded": (429, "load"), "expired": (504, "expired")}.get(error.code, (503, "not_serving"))
    return Problem(status=status, code=error.code, message=error.reason, kind=kind, retry_after_ms=error.retry_after_ms)


def _failed(error: RequestFailed) -> Problem:
    if error.code == "cancelled":
        return Problem(status=499, code="cancelled", message="the request was cancelled", kind="left")
    if "unknown model" in error.message or "no available versions" in error.message:
        reason = "the server does not serve this model any more"
        return Problem(
            status=503, code="not_serving", message=reason, kind="not_serving", retry_after_ms=_RETRY_WHEN_DOWN_MS
        )
    reason = error.reason or "the server failed; its log has the details"
    return Problem(status=500, code=error.code or "failed", message=reason, kind="failed")
