"""How long an engine with work may say nothing before it is taken for dead. Pure.

Releases before mid-2026 leave every waiting result waiting for ever when a worker dies or hangs. The time allowed grows
with the prompts that have no token yet and with requests that answer only at their end, so that a long prefill on a
slow GPU is no fault.
"""

from __future__ import annotations

from collections.abc import Iterable

from .flight import Flight

__all__ = ["SILENCE_S", "allowed_silence_s"]

SILENCE_S = 120.0
"""Allowed at least: longer than any warm-up of a kernel in the middle of serving."""
_SLOWEST_PREFILL_TOKENS_PER_S = 500.0
_SLOWEST_DECODE_TOKENS_PER_S = 2.0


def allowed_silence_s(flights: Iterable[Flight], *, least_s: float = SILENCE_S) -> float:
    allowed_s = least_s
    for flight in flights:
        if not flight.has_answered:
            allowed_s += len(flight.request.prompt_ids) / _SLOWEST_PREFILL_TOKENS_PER_S
        if not flight.is_streamed:
            allowed_s += flight.request.max_tokens / _SLOWEST_DECODE_TOKENS_PER_S
    return allowed_s
