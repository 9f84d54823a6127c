"""Traces composed of clients, after ServeGen (arXiv 2505.09999): many small ones and a few that make up the load, each
with its own burstiness, all following the day's rate.

What the aggregate file does not tell is set here: shares fall with the rank so that the first client has 29 %, gaps
are gamma with a variation between 1 and the file's 90th percentile, and lengths are the aggregate's for every client.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from seekserve.errors import InputError

from .traces import TraceRow

__all__ = ["Composed", "read_servegen"]

_CLIENTS = 73
_RANK_POWER = 1.18
_DEFAULT_ROWS = 20_000
_WINDOWS, _INPUTS, _OUTPUTS = (
    "rate_per_s_by_window_start_s",
    "input_tokens_pdf_by_bucket_low",
    "output_tokens_pdf_by_bucket_low",
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Shares of lengths by the lower edge of a bucket; within one, even on a logarithmic scale."""

    lows: tuple[int, ...]
    cumulative: tuple[float, ...]

    def draw(self, lot: random.Random) -> int:
        n = bisect_right(self.cumulative, lot.random() * self.cumulative[-1])
        n = min(n, len(self.lows) - 1)
        low = max(self.lows[n], 1)
        high = self.lows[n + 1] if n + 1 < len(self.lows) else 2 * low
        return int(math.exp(lot.uniform(math.log(low), math.log(high))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    name: str
    starts_s: tuple[float, ...] = field(repr=False)
    rates: tuple[float, ...] = field(repr=False)
    """Requests per second from each start on; the last one for ever."""
    inputs: Lengths = field(repr=False)
    outputs: Lengths = field(repr=False)
    most_cv: float
    skip: int = 0
    count: int = _DEFAULT_ROWS

    def rows(self, seed: int) -> Sequence[TraceRow]:
        lot = random.Random(f"servegen-{seed}")
        times = self._times(lot)
        for _ in range(self.skip):
            next(times)
        first_s = None
        rows = []
        for time_s in times:
            first_s = time_s if first_s is None else first_s
            rows.append(TraceRow(time_s - first_s, self.inputs.draw(lot), self.outputs.draw(lot)))
            if len(rows) == self.count:
                break
        return rows

    def _times(self, lot: random.Random) -> Iterator[float]:
        """Clients run on a clock on which the whole load comes at one request a second; the day bends that clock."""
        shares = [rank**-_RANK_POWER for rank in range(1, _CLIENTS + 1)]
        total = sum(shares)
        cvs = [lot.uniform(1.0, max(self.most_cv, 1.0)) for _ in shares]
        gaps = [total / share for share in shares]
        due = [(lot.expovariate(1.0 / gap), n) for n, gap in enumerate(gaps)]
        heapq.heapify(due)
        day = _Day(self.starts_s, self.rates)
        while True:
            work, n = due[0]
            yield day.time_s(work)
            shape = 1.0 / (cvs[n] * cvs[n])
            heapq.heapreplace(due, (work + lot.gammavariate(shape, gaps[n] / shape), n))


class _Day:
    """Turns a number of requests into the time by which that many have come; asked in ascending order."""

    def __init__(self, starts_s: Sequence[float], rates: Sequence[float]) -> None:
        self._starts_s, self._rates = starts_s, rates
        self._window, self._before = 0, 0.0

    def time_s(self, requests: float) -> float:
        while self._window + 1 < len(self._rates):
            length_s = self._starts_s[self._window + 1] - self._starts_s[self._window]
            through = self._before + length_s * self._rates[self._window]
            if requests < through:
                break
            self._before = through
            self._window += 1
        return self._starts_s[self._window] + (requests - self._before) / self._rates[self._window]


def read_servegen(path: Path, *, skip: int = 0, rows: int | None = None) -> Composed:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"trace {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"trace {path} is not JSON: {error}") from None
    try:
        windows = [(float(start), float(rate)) for start, rate in data[_WINDOWS]]
        return Composed(
            name=path.stem,
            starts_s=tuple(start for start, _ in windows),
            rates=tuple(max(rate, 1e-6) for _, rate in windows),
            inputs=_lengths(data[_INPUTS]),
            outputs=_lengths(data[_OUTPUTS]),
            most_cv=float(data["interarrival_cv_p90"]),
            skip=skip,
            count=rows or _DEFAULT_ROWS,
        )
    except KeyError as error:
        raise InputError(f"trace {path} lacks {error}: it is not an aggregate made of ServeGen's clients") from None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(f"trace {path}: {error}") from None


def _lengths(shares: dict[str, float]) -> Lengths:
    pairs = sorted((int(low), float(share)) for low, share in shares.items())
    return Lengths(tuple(low for low, _ in pairs), tuple(accumulate(share for _, share in pairs)))
