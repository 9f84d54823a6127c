"""From what a server or gRPC says went wrong to the exception that tells the caller what to do. Pure.

An error line of the backend decides by itself; without one, the transport's status does. A broken connection is never
mistaken for a refusal, though both travel as UNAVAILABLE.
"""

from __future__ import annotations

from seekserve.errors import NotAccepted, ProtocolError, Refused, RequestFailed, SeekserveError, ServerError, TimedOut
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine

__all__ = ["from_message", "from_status", "idle"]

_MODEL_HINT = "`seekserve status` lists the models that are served"


def from_message(message: str, url: str) -> SeekserveError:
    """The exception for an error that the server itself sent as an answer to the request."""
    line = ErrorLine.from_message(message)
    if line is not None:
        return _from_line(line, url)
    known = "unknown model" in message or "no available versions" in message
    return RequestFailed(f"{url}: {message}", hint=_MODEL_HINT if known else None)


def _from_line(line: ErrorLine, url: str) -> SeekserveError:
    if line.code.is_refusal:
        if line.retry_after_ms is None:
            hint = "trying the same request here again cannot help"
        else:
            hint = f"try again in {line.retry_after_ms} ms"
        return Refused(
            f"{url} refused the request ({line.code.value}): {line.reason}",
            code=line.code.value,
            reason=line.reason,
            retry_after_ms=line.retry_after_ms,
            request_id=line.request_id,
            hint=hint,
        )
    if line.code in (ErrorCode.INVALID, ErrorCode.TOO_LARGE):
        what = f"{line.field}: " if line.field is not None and not line.reason.startswith(line.field) else ""
        return NotAccepted(
            f"{url} does not accept the request ({line.code.value}): {what}{line.reason}",
            code=line.code.value,
            reason=line.reason,
            field=line.field,
        )
    mark = f" (request {line.request_id})" if line.request_id else ""
    return RequestFailed(
        f"{url}: the request {line.code.value}{mark}: {line.reason}", code=line.code.value, reason=line.reason
    )


def from_status(code: str, details: str, url: str, progress: str) -> SeekserveError:
    """The exception for a gRPC status other than OK; `progress` says what had arrived before, or is empty."""
    if ErrorLine.from_message(details) is not None:
        return from_message(details, url)
    if "protocol is restricted" in details:
        # Triton words a missing access key as UNAVAILABLE; the server is there all the same.
        return RequestFailed(f"{url}: this call is closed to clients: {details}")
    if code == "UNAVAILABLE":
        if progress:
            return ServerError(f"the connection to {url} broke {progress}: {details}")
        return ServerError(
            f"no Triton server answers at {url}: {details}",
            hint="`seekserve status` shows what runs; the gRPC port is needed (8001 by default), not the HTTP port",
        )
    if code == "UNIMPLEMENTED":
        return ProtocolError(f"{url} answers gRPC but not as a Triton server does: {details}")
    if code == "DEADLINE_EXCEEDED":
        return TimedOut(f"{url} did not answer in time: {details}")
    return RequestFailed(f"{url}: {code}: {details}" + (f" ({progress})" if progress else ""))


def idle(url: str, idle_timeout_s: float, progress: str) -> TimedOut:
    """The exception for a stream on which nothing arrived for too long."""
    return TimedOut(
        f"no response from {url} for {idle_timeout_s:g} s {progress or 'since the request was sent'}; it was cancelled",
        hint="a longer idle timeout helps only if the server is merely slow; `seekserve status` shows its queue",
    )
