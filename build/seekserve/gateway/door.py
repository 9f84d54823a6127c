"""Who may come in, and what their headers ask for: key, tenant, class, deadlines, resuming."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seekserve.gateway.keys import ApiKey, KeyRing
from seekserve.gateway.problems import Problem, ProblemError
from seekserve.gateway.resume import Resume, is_on, read_resume

__all__ = ["Admitted", "Door"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_MS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    key: str | None
    """The key's name."""
    tenant: str | None
    request_class: str | None
    """The key's, or what the caller asks for; what that is worth is the policy's to say."""
    timeout_ms: int | None
    """For the whole answer; the gateway keeps it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """For the client's request."""
    resume: Resume | None = None
    """A stream that shall go on, instead of a new one."""


class Door:
    def __init__(self, keys: KeyRing, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock

    def check_key(self, headers: Mapping[str, str]) -> ApiKey | None:
        """None where no keys are in use. Raises ProblemError (401)."""
        if not len(self._keys):
            return None
        key = self._keys.find(headers.get("authorization"))
        if key is None:
            reason = "no valid API key; send it as `Authorization: Bearer KEY`"
            raise ProblemError(Problem(status=401, code="invalid_api_key", message=reason, kind="auth"))
        return key

    def admit(self, headers: Mapping[str, str], *, route: str) -> Admitted:
        """`route`: the path that was called. Raises ProblemError: 401, 429 for a key that asks too often, 400 for a
        bad header."""
        key = self.check_key(headers)
        if key is not None and (wait_ms := self._keys.wait_ms(key, self._clock())) is not None:
            reason = f"key {key.name} may send {key.requests_per_min:g} requests a minute"
            raise ProblemError(
                Problem(status=429, code="rate_limited", message=reason, kind="rate", retry_after_ms=wait_ms)
            )
        tenant, key_class, asked_class = _who(key, headers)
        timeout_ms = _ms(headers, "x-request-timeout-ms")
        deadline_ms = _ms(headers, "x-deadline-ms")
        if timeout_ms is not None:
            # A first token after the end is worth nothing, so the backend may drop the request by then.
            deadline_ms = min(timeout_ms, deadline_ms or timeout_ms)
        fields: dict[str, Any] = {
            "tenant": tenant,
            "request_class": key_class,
            "deadline_ms": deadline_ms,
            "parameters": _origin(route, asked_class, tenant, deadline_ms),
        }
        fields["heartbeat_ms"] = _ms(headers, "x-heartbeat-ms")
        if is_on(headers, "x-resumable"):
            fields["resumable"] = True
        return Admitted(
            key=None if key is None else key.name,
            tenant=tenant,
            request_class=key_class or asked_class,
            timeout_ms=timeout_ms,
            fields={name: value for name, value in fields.items() if value is not None},
            resume=read_resume(headers),
        )


def _who(key: ApiKey | None, headers: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """Tenant, class of the key, class that the caller asks for. A key's are not the caller's to choose; without keys
    the headers are believed."""
    asked = _name(headers, "x-request-type")
    if key is None:
        return _name(headers, "x-tenant"), None, asked
    return key.tenant, key.request_class, None if key.request_class else asked


def _origin(route: str, asked_class: str | None, tenant: str | None, deadline_ms: int | None) -> dict[str, str]:
    """Where the request comes from, as request parameters: what the routes of a policy can ask for."""
    headers = {
        "x-request-type": asked_class,
        "x-tenant": tenant,
        "x-deadline-ms": None if deadline_ms is None else str(deadline_ms),
    }
    return {"endpoint": route, **{name: value for name, value in headers.items() if value is not None}}


def _name(headers: Mapping[str, str], header: str) -> str | None:
    value = headers.get(header)
    if value is None or _NAME.fullmatch(value):
        return value
    raise _bad(header, "expected 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen")


def _ms(headers: Mapping[str, str], header: str) -> int | None:
    value = headers.get(header)
    if value is None:
        return None
    if value.isascii() and value.isdecimal() and len(value) <= 10 and 1 <= int(value) <= _MOST_MS:
        return int(value)
    raise _bad(header, f"expected whole milliseconds from 1 to {_MOST_MS}, got {value[:20]!r}")


def _bad(header: str, sentence: str) -> ProblemError:
    return ProblemError(
        Problem(status=400, code="invalid", message=f"header {header}: {sentence}", kind="invalid", param=header)
    )
