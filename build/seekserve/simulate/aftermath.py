"""How long a disturbance is felt: after a surge of arrivals, after a change of speed; and how restless rungs are.

All from what was sampled or from outcomes; NaN where there was no disturbance, infinite where it was never over.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence

from .records import Outcome, Sample

__all__ = ["recovery_s", "rung_changes_per_min", "settle_s"]

_WINDOW_S = 10.0
_RECOVERED = 0.9
_SETTLED = 0.05


def recovery_s(urgent: Sequence[Outcome], good: set[int], surge_s: tuple[float, float] | None) -> float:
    """From the end of the surge until, of what arrives within ten seconds, nine tenths are good. `good`: their ids."""
    if surge_s is None:
        return math.nan
    times_s = [o.arrival.time_s for o in urgent]
    from_s = surge_s[1]
    while from_s + _WINDOW_S <= times_s[-1]:
        window = urgent[bisect_left(times_s, from_s) : bisect_left(times_s, from_s + _WINDOW_S)]
        if window and sum(id(o) in good for o in window) >= _RECOVERED * len(window):
            return from_s - surge_s[1]
        from_s += 1.0
    return math.inf


def settle_s(samples: Sequence[Sample], slowdowns: Sequence[tuple[float, float]]) -> float:
    """From the last change of the engine's speed until the scheduler's bias is within 5 % of it.

    Holds where the scheduler believes in the plant's own model.
    """
    known = [sample for sample in samples if not math.isnan(sample.bias)]
    if not slowdowns or not known:
        return math.nan
    at_s, factor = slowdowns[-1]
    near = (s.time_s - at_s for s in known if s.time_s >= at_s and abs(s.bias / factor - 1.0) <= _SETTLED)
    return next(near, math.inf)


def rung_changes_per_min(samples: Sequence[Sample]) -> float:
    known = [sample for sample in samples if not math.isnan(sample.rung)]
    if len(known) < 2:
        return math.nan
    changes = sum(a.rung != b.rung for a, b in itertools.pairwise(known))
    return 60.0 * changes / (known[-1].time_s - known[0].time_s)
