"""Intervals and tests for shares of right answers. Pure, closed formulas: the same counts give the same figures.

One share: Wilson's score interval. Two builds on the same questions: Newcombe's square-and-add interval for paired
shares (Statistics in Medicine 17, 1998, method 10), and McNemar's exact test on the questions where they differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

__all__ = ["Interval", "Pairs", "mcnemar_p", "paired_difference", "wilson"]

Z_95 = NormalDist().inv_cdf(0.975)


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Questions by who answered right; the two builds are `first` and `second`."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def asked(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Share of `first` minus share of `second`."""
        return (self.only_first - self.only_second) / self.asked


def wilson(right: int, asked: int, z: float = Z_95) -> Interval:
    """Within 0 and 1, and never of width 0: all of 20 right says less than all of 2000."""
    if not 0 <= right <= asked or asked < 1:
        raise ValueError(f"{right} right of {asked} asked")
    share, spread = right / asked, z * z / asked
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / asked + z * z / (4 * asked * asked)) / (1 + spread)
    # At the ends the formula is exactly 0 or 1; rounding must not make it anything else.
    return Interval(0.0 if right == 0 else max(0.0, centre - half), 1.0 if right == asked else min(1.0, centre + half))


def paired_difference(pairs: Pairs, z: float = Z_95) -> Interval:
    """Of `pairs.difference`: the two Wilson intervals joined, the correlation of the answers taken into account."""
    asked = pairs.asked
    p1, p2 = (pairs.both + pairs.only_first) / asked, (pairs.both + pairs.only_second) / asked
    first, second = wilson(pairs.both + pairs.only_first, asked, z), wilson(pairs.both + pairs.only_second, asked, z)
    correlation = _correlation(pairs)

    def joined(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))

    return Interval(
        max(-1.0, p1 - p2 - joined(p1 - first.low, second.high - p2)),
        min(1.0, p1 - p2 + joined(first.high - p1, p2 - second.low)),
    )


def mcnemar_p(pairs: Pairs) -> float:
    """Two-sided: how likely so uneven a split of the differing questions is if neither build is better."""
    differing = pairs.only_first + pairs.only_second
    fewer = min(pairs.only_first, pairs.only_second)
    tail = sum(math.comb(differing, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << differing))


def _correlation(pairs: Pairs) -> float:
    """Newcombe's phi, its positive values corrected for continuity; 0 where a margin is empty."""
    margins = (
        (pairs.both + pairs.only_first)
        * (pairs.only_second + pairs.neither)
        * (pairs.both + pairs.only_second)
        * (pairs.only_first + pairs.neither)
    )
    if margins == 0:
        return 0.0
    product = float(pairs.both * pairs.neither - pairs.only_first * pairs.only_second)
    if product > 0:
        product = max(0.0, product - pairs.asked / 2)
    return product / math.sqrt(margins)
