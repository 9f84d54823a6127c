"""The few statistics that reports need: percentiles, a bootstrap interval of a mean, Jain's index, max-min shares."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

__all__ = ["interval", "jain", "max_min_shares", "mean", "percentile"]

_RESAMPLES = 1000


def percentile(values: Sequence[float], part: float) -> float:
    """Nearest rank; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(part * len(ordered)) - 1))]


def mean(values: Sequence[float]) -> float:
    """Of those that are numbers."""
    good = [value for value in values if not math.isnan(value)]
    return sum(good) / len(good) if good else math.nan


def interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float, float]:
    """(mean, low, high) of the mean, 95 %, by bootstrap; of one value, that value."""
    good = [value for value in values if not math.isnan(value)]
    if len(good) < 2:
        only = good[0] if good else math.nan
        return only, only, only
    lot = random.Random(seed)
    means = sorted(sum(lot.choices(good, k=len(good))) / len(good) for _ in range(_RESAMPLES))
    return sum(good) / len(good), means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES) - 1]


def jain(shares: Sequence[float]) -> float:
    """1 when all are alike, 1/n when one has everything; NaN of fewer than two."""
    squares = sum(share * share for share in shares)
    if len(shares) < 2:
        return math.nan
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def max_min_shares(wanted: Mapping[str, float], capacity: float) -> dict[str, float]:
    """What each is entitled to: as much as it wants, as long as nobody who has less could have more."""
    out: dict[str, float] = {}
    left = capacity
    for place, name in enumerate(sorted(wanted, key=lambda each: wanted[each])):
        out[name] = min(wanted[name], left / (len(wanted) - place))
        left -= out[name]
    return out
