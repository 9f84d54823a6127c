"""The one line of JSON that every error of the backend carries, since a Triton error has no other structured part.

`retry_after_ms` is a computed, finite hint; null means that trying the same request again can never help.
Source of the need: Triton keeps only the message of a streamed error (no status object reaches a gRPC stream client).
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass

from .fields import ContractError, Fields

__all__ = ["ErrorCode", "ErrorLine"]


class ErrorCode(str, enum.Enum):
    """What the caller can do about it; `triton_code` is the Triton status the error travels under."""

    OVERLOADED = "overloaded"  # come back after retry_after_ms
    NOT_SERVING = "not_serving"  # draining, stopped or broken: another replica, or later
    EXPIRED = "expired"  # the deadline passed before the first token
    TOO_LARGE = "too_large"  # can never fit: shorten it
    INVALID = "invalid"  # bad input: field and bound are in the reason
    CANCELLED = "cancelled"  # the client asked for it
    FAILED = "failed"  # the engine or the backend failed; details are in the server's log only

    @property
    def triton_code(self) -> str:
        return _TRITON_CODES[self]

    @property
    def is_refusal(self) -> bool:
        """True where the request was never started (or never reached its first token) for reasons of load."""
        return self in (ErrorCode.OVERLOADED, ErrorCode.NOT_SERVING, ErrorCode.EXPIRED)


_TRITON_CODES = {
    ErrorCode.OVERLOADED: "UNAVAILABLE",
    ErrorCode.NOT_SERVING: "UNAVAILABLE",
    ErrorCode.EXPIRED: "UNAVAILABLE",
    ErrorCode.TOO_LARGE: "INVALID_ARG",
    ErrorCode.INVALID: "INVALID_ARG",
    ErrorCode.CANCELLED: "CANCELLED",
    ErrorCode.FAILED: "INTERNAL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLine:
    """One error as both halves see it."""

    code: ErrorCode
    reason: str
    """One sentence for people, with the numbers in it."""
    retry_after_ms: int | None = None
    request_id: str = ""
    field: str | None = None
    """Name of the offending input tensor or JSON field, for INVALID and TOO_LARGE."""

    def to_line(self) -> str:
        body: dict[str, object] = {
            "code": self.code.value,
            "reason": self.reason,
            "retry_after_ms": self.retry_after_ms,
            "request_id": self.request_id,
        }
        if self.field is not None:
            body["field"] = self.field
        return json.dumps(body, ensure_ascii=True, separators=(",", ":"))

    @classmethod
    def from_message(cls, message: str) -> ErrorLine | None:
        """Finds the line in an error text, which Triton may have prefixed; None when there is none.

        Keys that this version does not know are left alone: an older client reads a newer server's line.
        """
        start = message.find('{"code":')
        if start < 0:
            return None
        try:
            data, _ = json.JSONDecoder().raw_decode(message[start:])
            known = ("code", "reason", "retry_after_ms", "request_id", "field")
            fields = Fields({key: value for key, value in data.items() if key in known}, "error line")
            code = fields.string("code", choices=[c.value for c in ErrorCode])
            reason = fields.string("reason")
            retry_after_ms = fields.opt_integer("retry_after_ms", low=0)
            request_id = fields.string("request_id")
            field = fields.opt_string("field")
            fields.done()
        except (json.JSONDecodeError, ContractError):
            return None
        return cls(
            code=ErrorCode(code), reason=reason, retry_after_ms=retry_after_ms, request_id=request_id, field=field
        )
