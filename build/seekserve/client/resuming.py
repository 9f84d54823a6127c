"""How a stream goes on after its connection broke: what is asked of the server, how often, how it is given up. Pure.

Leaving a stream on purpose looks to the server like a broken connection, so a resumable one is given up with its
token; else its work would go on until the server has waited long enough for a return.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from seekserve.client.request import GenerateRequest
from seekserve.errors import InputError, ProtocolError, SeekserveError, ServerError
from seekserve_backend.contract.refusal import ErrorLine

__all__ = ["Comeback", "FAREWELL_S", "farewell", "prepared"]

FAREWELL_S = 1.0
"""How long closing a client waits for streams to be given up; after that the server's own patience ends them."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


@dataclass(slots=True, kw_only=True)
class Comeback:
    """One stream's right to come back."""

    request: GenerateRequest
    most_attempts: int
    attempts: int = 0
    """Since something last arrived."""

    def may_try(self, code: str, details: str, token: str | None) -> bool:
        """True for a connection that broke under a stream which the server keeps; counts the attempt."""
        if token is None or self.attempts >= self.most_attempts or not _is_broken_connection(code, details):
            return False
        self.attempts += 1
        return True

    @property
    def pause_s(self) -> float:
        """Before the attempt that was counted last."""
        pause_s: float = _FIRST_PAUSE_S * 2 ** (self.attempts - 1)
        return min(_LONGEST_PAUSE_S, pause_s)

    def arrived(self) -> None:
        self.attempts = 0

    def request_for(self, token: str, received_bytes: int) -> GenerateRequest:
        return GenerateRequest(
            resume_token=token,
            resume_from_bytes=received_bytes,
            tenant=self.request.tenant,
            heartbeat_ms=self.request.heartbeat_ms,
            request_id=self.request.request_id,
        )

    def failure(self, error: Exception, url: str, progress: str) -> Exception:
        """What a caller is told whose return was refused: its request was good, its connection was not."""
        if self.attempts and isinstance(error, InputError):
            return ServerError(f"the connection to {url} broke {progress} and could not be resumed: {error}")
        return error

    @staticmethod
    def is_servers_end(error: Exception) -> bool:
        """True for an answer of the server that ends the request; anything else leaves it running there."""
        return isinstance(error, SeekserveError) and not isinstance(error, ProtocolError)


def prepared(request: GenerateRequest, reconnects: int) -> GenerateRequest:
    """Asks for a token where one is needed. Raises InputError for a negative count."""
    if reconnects < 0:
        raise InputError(f"reconnects: expected at least 0, got {reconnects}")
    is_asked = request.resumable is not None or request.resume_token is not None
    return request if is_asked or reconnects == 0 else dataclasses.replace(request, resumable=True)


def farewell(token: str, tenant: str | None) -> GenerateRequest:
    """Gives a stream up: its work is cancelled."""
    return GenerateRequest(resume_token=token, resume_cancel=True, tenant=tenant)


def _is_broken_connection(code: str, details: str) -> bool:
    return code == "UNAVAILABLE" and ErrorLine.from_message(details) is None and "protocol is restricted" not in details
