"""The load up to which a policy keeps its promises: the one number of a sweep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from .stats import mean
from .sweep import Result

__all__ = ["by_line", "knees"]


def by_line(results: Sequence[Result]) -> dict[tuple[str, float, str], list[Result]]:
    """(trace, speed, policy) -> its seeds, in the order of `results`."""
    out: dict[tuple[str, float, str], list[Result]] = {}
    for result in results:
        case = result.case
        out.setdefault((case.trace.name, case.load.speed, case.policy), []).append(result)
    return out


def knees(results: Sequence[Result], *, attainment: float = 0.9) -> dict[tuple[str, str], tuple[float, bool]]:
    """(trace, policy) -> offered requests/s up to which the attainment holds, and whether it held at every load tried.

    Between two speeds by a straight line; NaN where it does not hold at the lowest.
    """
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (trace, _, policy), same in by_line(results).items():
        rate = mean([r.figures.offered_rps for r in same])
        curves.setdefault((trace, policy), []).append((rate, mean([r.figures.attainment for r in same])))
    return {key: _crossing(sorted(points), attainment) for key, points in curves.items()}


def _crossing(points: Sequence[tuple[float, float]], level: float) -> tuple[float, bool]:
    if points[0][1] < level:
        return math.nan, False
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if y1 < level:
            return x0 + (x1 - x0) * (y0 - level) / (y0 - y1), False
    return points[-1][0], True
