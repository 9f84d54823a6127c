"""Several looks at one model of one server, and what follows from them: rates, means, percentiles. Pure.

Every question is answered with None where the numbers for it are absent or nothing happened: that is never 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seekserve_backend.contract.metric_names import FAMILY, PREFIX

from .reading import Histogram, Numbers, Scrape

__all__ = ["Window", "quantile", "windows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    server: str
    model: str
    times_s: tuple[float, ...]
    """Ascending; one or more."""
    numbers: tuple[Numbers, ...]
    gpus: tuple[Mapping[str, Mapping[str, float]], ...] = ()

    @property
    def seconds(self) -> float:
        return self.times_s[-1] - self.times_s[0]

    @property
    def now_s(self) -> float:
        return self.times_s[-1]

    # Gauges

    def now(self, name: str, **labels: str) -> float | None:
        """As last read; the sum over its labels, of those that match."""
        return _sum(self.numbers[-1], name, labels)

    def mean(self, name: str, **labels: str) -> float | None:
        found = self._all(name, labels)
        return sum(found) / len(found) if found else None

    def peak(self, name: str, **labels: str) -> float | None:
        return max(self._all(name, labels), default=None)

    def by(self, name: str, label: str) -> dict[str, float]:
        """As last read, by the values of one label."""
        return _by(self.numbers[-1], name, label)

    # Counters

    def increase(self, name: str, **labels: str) -> float | None:
        """A counter that falls has begun anew: then what it has is what was added."""
        if len(self.numbers) < 2 or _sum(self.numbers[-1], name, labels) is None:
            return None
        values = [_sum(each, name, labels) or 0.0 for each in self.numbers]
        return sum(b - a if b >= a else b for a, b in itertools.pairwise(values))

    def rate(self, name: str, **labels: str) -> float | None:
        """A second."""
        grown = self.increase(name, **labels)
        return None if grown is None or self.seconds <= 0.0 else grown / self.seconds

    def rates(self, name: str, label: str) -> dict[str, float]:
        """By the values of one label; those that did not grow are 0."""
        found = {value: self.rate(name, **{label: value}) for value in self.by(name, label)}
        return {value: rate for value, rate in found.items() if rate is not None}

    # Histograms

    def observed(self, name: str, **labels: str) -> Histogram | None:
        """What was observed within the window; None of nothing."""
        if len(self.numbers) < 2:
            return None
        parts = [_grown(a, b, name, labels) for a, b in itertools.pairwise(self.numbers)]
        return _total([part for part in parts if part is not None])

    def before(self, name: str, **labels: str) -> Histogram | None:
        """What was observed until the window began: the usual, to compare with."""
        return _total(_histograms(self.numbers[0], name, labels))

    def quantile(self, name: str, part: float, **labels: str) -> float | None:
        found = self.observed(name, **labels)
        return None if found is None else quantile(found, part)

    def mean_observed(self, name: str, **labels: str) -> float | None:
        found = self.observed(name, **labels)
        return None if found is None else found.sum / found.count

    def numbers_age_s(self) -> float | None:
        """How old the numbers are, which a living process writes every second; None where it does not say.

        By when they were last seen to change, so that clocks of two machines need not agree; only where the window is
        too short to see that, by the time that the process wrote.
        """
        marks = [_sum(each, "flush_timestamp_seconds", {}) for each in self.numbers]
        written_s = marks[-1]
        if written_s is None:
            return None
        changed = [n for n in range(1, len(marks)) if marks[n] != marks[n - 1]]
        if changed:
            return self.now_s - self.times_s[changed[-1]]
        return max(self.seconds, self.now_s - written_s)

    # GPUs

    def gpu(self, name: str) -> dict[str, float]:
        """As last read, by GPU."""
        last = self.gpus[-1] if self.gpus else {}
        return {gpu: values[name] for gpu, values in sorted(last.items()) if name in values}

    def _all(self, name: str, labels: Mapping[str, str]) -> list[float]:
        found = (_sum(each, name, labels) for each in self.numbers)
        return [value for value in found if value is not None]


def windows_of(scrapes: Sequence[Scrape]) -> list[Window]:
    """One for each model of each server; GPUs of an exporter that has no model go with every window."""
    scrapes = sorted(scrapes, key=lambda each: each.time_s)
    exporters = [each for each in scrapes if each.gpus and not each.models]
    keys = dict.fromkeys((each.server, model) for each in scrapes for model in sorted(each.models))
    out = []
    for server, model in keys:
        mine = [each for each in scrapes if each.server == server and model in each.models]
        gpus: list[Mapping[str, Mapping[str, float]]] = [each.gpus for each in mine if each.gpus]
        out.append(
            Window(
                server=server,
                model=model,
                times_s=tuple(each.time_s for each in mine),
                numbers=tuple(each.models[model] for each in mine),
                gpus=tuple(gpus or [each.gpus for each in exporters]),
            )
        )
    return out


def quantile(histogram: Histogram, part: float) -> float | None:
    """Linear within a bucket, as Prometheus does it; beyond the last finite bound it is that bound."""
    if histogram.count <= 0.0:
        return None
    rank, below, low = part * histogram.count, 0.0, 0.0
    for bound, cumulative in zip(histogram.bounds, histogram.counts, strict=True):
        if cumulative >= rank and cumulative > below:
            if bound == math.inf:
                return low
            return low + (bound - low) * (rank - below) / (cumulative - below)
        below, low = cumulative, bound if bound != math.inf else low
    return low


def _places(name: str, labels: Mapping[str, str]) -> list[tuple[int, str]]:
    own = FAMILY[PREFIX + name].labels
    return [(own.index(label), value) for label, value in labels.items()]


def _sum(numbers: Numbers, name: str, labels: Mapping[str, str]) -> float | None:
    table = numbers.values.get(name)
    if table is None:
        return None
    places = _places(name, labels)
    found = [value for own, value in table.items() if all(own[n] == wanted for n, wanted in places)]
    return sum(found) if found else None


def _by(numbers: Numbers, name: str, label: str) -> dict[str, float]:
    place = FAMILY[PREFIX + name].labels.index(label)
    out: dict[str, float] = {}
    for own, value in sorted(numbers.values.get(name, {}).items()):
        out[own[place]] = out.get(own[place], 0.0) + value
    return out


def _histograms(numbers: Numbers, name: str, labels: Mapping[str, str]) -> list[Histogram]:
    places = _places(name, labels)
    table = numbers.histograms.get(name, {})
    return [each for own, each in sorted(table.items()) if all(own[n] == wanted for n, wanted in places)]


def _grown(a: Numbers, b: Numbers, name: str, labels: Mapping[str, str]) -> Histogram | None:
    before, after = _total(_histograms(a, name, labels)), _total(_histograms(b, name, labels))
    if after is None or before is None or before.bounds != after.bounds or before.count > after.count:
        return after
    counts = tuple(y - x for x, y in zip(before.counts, after.counts, strict=True))
    return Histogram(after.bounds, counts, after.sum - before.sum)


def _total(parts: Sequence[Histogram]) -> Histogram | None:
    """None of nothing observed."""
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total if total.count > 0.0 else None
