"""Why a request is not taken, before the scheduler adds when to come back."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..contract.refusal import ErrorCode

__all__ = ["CODES", "Refusal", "Why"]


class Why(str, enum.Enum):
    """The same for people who count refusals: few values, each with one thing to do about it."""

    INVALID = "invalid"
    TOO_LARGE = "too_large"
    INTAKE_FULL = "intake_full"
    QUEUE_FULL = "queue_full"
    TOO_LATE = "too_late"  # its first token would come after its deadline
    EXPIRED = "expired"  # the deadline passed before it could be queued
    OFFLINE_FULL = "offline_full"
    RUNG = "rung"  # its class is shed under pressure
    LATENCY = "latency"  # level 2 of the rules of thumb
    DRAINING = "draining"
    SWAPPING = "swapping"
    BREAKER = "breaker"


CODES = {
    Why.INVALID: ErrorCode.INVALID,
    Why.TOO_LARGE: ErrorCode.TOO_LARGE,
    Why.INTAKE_FULL: ErrorCode.OVERLOADED,
    Why.QUEUE_FULL: ErrorCode.OVERLOADED,
    Why.TOO_LATE: ErrorCode.OVERLOADED,
    Why.EXPIRED: ErrorCode.EXPIRED,
    Why.OFFLINE_FULL: ErrorCode.OVERLOADED,
    Why.RUNG: ErrorCode.OVERLOADED,
    Why.LATENCY: ErrorCode.OVERLOADED,
    Why.DRAINING: ErrorCode.NOT_SERVING,
    Why.SWAPPING: ErrorCode.NOT_SERVING,
    Why.BREAKER: ErrorCode.NOT_SERVING,
}
"""What each travels under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    code: ErrorCode
    why: Why
    reason: str
    field: str | None = None
    ahead: int | None = None
    """Requests to wait for before another try makes sense; None: another try is useless, unless `wait_ms` says when."""
    wait_ms: float | None = None
    """Time after which there would have been room, where it is known."""
