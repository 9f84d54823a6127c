"""The knee: the highest rate at which enough of what is offered meets its targets. Pure; it asks for runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Knee", "find_knee"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    rate_rps: float | None
    """The highest rate that held; None when not even the first did."""
    broke_at_rps: float | None
    """The lowest rate that did not; None when all did, so the knee lies higher."""
    tried: tuple[tuple[float, float], ...]
    """(rate, attainment) in the order of trying."""

    def text(self, share: float) -> str:
        held = "no rate tried" if self.rate_rps is None else f"{self.rate_rps:.3f} requests/s"
        broke = "nothing tried broke it" if self.broke_at_rps is None else f"{self.broke_at_rps:.3f} did not hold"
        return f"knee at {share:.0%} attainment: {held} ({broke}; {len(self.tried)} runs)"


def find_knee(
    attainment_at: Callable[[float], float],
    start_rps: float,
    *,
    share: float = 0.9,
    growth: float = 1.5,
    resolution: float = 1.1,
    most_runs: int = 12,
) -> Knee:
    """Raises the rate by `growth` until it breaks, lowers it likewise if the first one does, then halves the gap until
    the two rates are within `resolution` of each other."""
    good: float | None = None
    bad: float | None = None
    tried: list[tuple[float, float]] = []
    rate = start_rps
    while len(tried) < most_runs:
        attainment = attainment_at(rate)
        tried.append((rate, attainment))
        if attainment >= share:
            good = rate
        else:
            bad = rate
        if good is None:
            rate /= growth
        elif bad is None:
            rate *= growth
        elif bad / good <= resolution:
            break
        else:
            rate = (good * bad) ** 0.5
    return Knee(rate_rps=good, broke_at_rps=bad, tried=tuple(tried))
