"""How late the load generator itself was, and whether what it measured still means anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seekserve.simulate.slo import SloFile
from seekserve.simulate.stats import percentile

__all__ = ["Lag", "bound_ms", "lag_of"]

_MOST_MS = 20.0
_SHARE_OF_TARGET = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    send_p50_ms: float
    """From when a request was to be sent until it was."""
    send_p99_ms: float
    loop_p99_ms: float
    """Of the event loop that receives: how late a timer fires."""
    bound_ms: float

    @property
    def is_valid(self) -> bool:
        return self.worst_ms <= self.bound_ms

    @property
    def worst_ms(self) -> float:
        return max(self.send_p99_ms, self.loop_p99_ms)

    @property
    def verdict(self) -> str:
        if self.is_valid:
            return f"valid: the client's own delay is {self.worst_ms:.1f} ms at P99 (bound {self.bound_ms:.0f} ms)"
        return (
            f"NOT VALID: the client's own delay is {self.worst_ms:.1f} ms at P99 where {self.bound_ms:.0f} ms is the "
            "most that leaves the figures meaningful; use a less busy machine, or a lower rate"
        )


def bound_ms(slo: SloFile) -> float:
    """A tenth of the smallest first-token target, at most 20 ms."""
    targets = [rules.ttft_ms for rules in slo.classes.values() if rules.ttft_ms is not None]
    return min([_MOST_MS, *(_SHARE_OF_TARGET * target for target in targets)])


def lag_of(send_ms: Sequence[float], loop_ms: Sequence[float], slo: SloFile) -> Lag:
    return Lag(
        send_p50_ms=percentile(send_ms, 0.5),
        send_p99_ms=percentile(send_ms, 0.99),
        loop_p99_ms=percentile(loop_ms, 0.99) if loop_ms else 0.0,
        bound_ms=bound_ms(slo),
    )
