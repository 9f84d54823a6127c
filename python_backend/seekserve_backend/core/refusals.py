"""Why a request is not taken, before the scheduler adds when to come back."""

from __future__ import annotations

from dataclasses import dataclass

from ..contract.refusal import ErrorCode

__all__ = ["Refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    code: ErrorCode
    reason: str
    field: str | None = None
    ahead: int | None = None
    """Requests to wait for before another try makes sense; None: another try is useless, unless `wait_ms` says when."""
    wait_ms: float | None = None
    """Time after which there would have been room, where it is known."""
