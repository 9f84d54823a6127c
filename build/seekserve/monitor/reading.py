"""One look at a server's metrics: the only place of this package that knows how they are written.

The families are those of the backend's own table; what an exporter of GPU numbers or Triton itself adds is taken where
its name is known. Numbers of several processes of one model become one: what counts is added, of states the worst is
kept. What is absent is absent, never 0. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seekserve.errors import ProtocolError
from seekserve_backend.contract.metric_names import BOOKS, FAMILIES, PREFIX, Family, Kind

__all__ = ["GPU_FAMILIES", "INSIDE", "Histogram", "Numbers", "Sample", "Scrape", "parse_text", "scrape_of"]

Labels = tuple[str, ...]
Sample = tuple[str, Mapping[str, str], float]
"""(name, labels, value)"""

INSIDE = tuple(
    family.name.removeprefix(PREFIX) for family in BOOKS if family.kind is Kind.GAUGE and family.unit == "requests"
)
"""Where a request can be between its arrival and its end; offered = these + ended."""

_STALE_S = 10.0
_FLUSHED = "flush_timestamp_seconds"
# Of gauges that cannot be added: the worst of all processes tells of the model.
_LOWEST = frozenset({"flush_timestamp_seconds", "credit_seconds"})
_ADDED_UNITS = ("requests", "blocks", "tokens", "responses", "flushes", "streams", "results", "bytes")
_ADDED = frozenset(
    family.name.removeprefix(PREFIX) for family in FAMILIES if family.kind is Kind.GAUGE and family.unit in _ADDED_UNITS
) - {"output_length_error_tokens"}

_BY_SAMPLE: dict[str, tuple[Family, str]] = {}
for _family in FAMILIES:
    if _family.kind is Kind.HISTOGRAM:
        _BY_SAMPLE |= {_family.name + suffix: (_family, suffix) for suffix in ("_bucket", "_sum", "_count")}
    else:
        _BY_SAMPLE[_family.name] = (_family, "")

GPU_FAMILIES: Mapping[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("clock_mhz", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", 2.0**20),
    "DCGM_FI_DEV_FB_FREE": ("memory_free_bytes", 2.0**20),
    "DCGM_FI_DEV_GPU_UTIL": ("busy_ratio", 0.01),
    "DCGM_FI_DEV_XID_ERRORS": ("xid", 1.0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_double_bit", 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("throttle_reasons", 1.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("throttle_reasons", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("bandwidth_ratio", 1.0),
    "nv_gpu_utilization": ("busy_ratio", 1.0),
    "nv_gpu_memory_used_bytes": ("memory_used_bytes", 1.0),
    "nv_gpu_memory_total_bytes": ("memory_total_bytes", 1.0),
    "nv_gpu_power_usage": ("power_w", 1.0),
}
"""Sample -> (what it is called here, factor to the unit in that name): NVIDIA's DCGM exporter, and Triton."""
_GPU_LABELS = ("UUID", "gpu_uuid", "gpu")


@dataclass(frozen=True, slots=True)
class Histogram:
    bounds: tuple[float, ...]
    """Ascending, the last is infinite."""
    counts: tuple[float, ...]
    """Cumulative, one for each bound."""
    sum: float

    @property
    def count(self) -> float:
        return self.counts[-1] if self.counts else 0.0

    def __add__(self, other: Histogram) -> Histogram:
        if self.bounds != other.bounds:  # two versions of the backend: the finer one cannot be made up
            return max((self, other), key=lambda each: each.count)
        return Histogram(
            self.bounds, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)), self.sum + other.sum
        )


@dataclass(slots=True)
class Numbers:
    """Of one model at one moment. Names are those of the backend's table without prefix."""

    values: dict[str, dict[Labels, float]] = field(default_factory=dict)
    """Name -> values of its own labels -> number."""
    histograms: dict[str, dict[Labels, Histogram]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Scrape:
    server: str
    """Where it was read."""
    time_s: float
    """Unix time."""
    models: dict[str, Numbers] = field(default_factory=dict)
    gpus: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "server": self.server,
            "time_s": round(self.time_s, 3),
            "models": {name: _numbers_json(numbers) for name, numbers in sorted(self.models.items())},
            "gpus": self.gpus,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Scrape:
        """Raises KeyError, TypeError or ValueError on anything else than `to_json` makes."""
        return cls(
            server=str(data["server"]),
            time_s=float(data["time_s"]),
            models={str(name): _numbers_of(entry) for name, entry in data["models"].items()},
            gpus={
                str(gpu): {str(name): float(value) for name, value in entry.items()}
                for gpu, entry in data["gpus"].items()
            },
        )


def parse_text(text: str) -> list[Sample]:
    """Samples of Prometheus exposition text. Raises ProtocolError where it is something else."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        return [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
    except ValueError as error:
        start = text.strip().splitlines()[0][:80] if text.strip() else ""
        raise ProtocolError(
            f"these are no Prometheus metrics ({error}): {start!r}", hint="name the address that ends in /metrics"
        ) from None


def scrape_of(samples: Iterable[Sample], *, server: str, time_s: float) -> Scrape:
    """Samples of other exporters are passed over."""
    scrape = Scrape(server=server, time_s=time_s)
    ours: dict[str, list[tuple[Family, str, Mapping[str, str], float]]] = {}
    for name, labels, value in samples:
        known = _BY_SAMPLE.get(name)
        if known is not None and "model" in labels:
            ours.setdefault(labels["model"], []).append((*known, labels, value))
        elif name in GPU_FAMILIES:
            gpu = next((labels[label] for label in _GPU_LABELS if label in labels), "0")
            called, factor = GPU_FAMILIES[name]
            scrape.gpus.setdefault(gpu, {})[called] = value * factor
    scrape.models = {model: _numbers(entries) for model, entries in ours.items()}
    return scrape


def _numbers(entries: Sequence[tuple[Family, str, Mapping[str, str], float]]) -> Numbers:
    numbers, stale = Numbers(), _stale_processes(entries)
    buckets: dict[tuple[str, Labels, str], dict[float, float]] = {}
    sums: dict[tuple[str, Labels, str], float] = {}
    for family, suffix, labels, value in entries:
        name = family.name.removeprefix(PREFIX)
        own = tuple(labels.get(label, "") for label in family.labels)
        process = labels.get("process", "")
        if suffix == "_bucket":
            buckets.setdefault((name, own, process), {})[float(labels["le"])] = value
        elif suffix == "_sum":
            sums[name, own, process] = value
        elif suffix == "" and not (family.kind is Kind.GAUGE and process in stale):
            table = numbers.values.setdefault(name, {})
            table[own] = value if own not in table else _joined(name, family.kind, table[own], value)
    for (name, own, process), found in buckets.items():
        bounds = tuple(sorted(found))
        if not bounds or bounds[-1] != math.inf:
            continue
        histogram = Histogram(bounds, tuple(found[le] for le in bounds), sums.get((name, own, process), 0.0))
        known = numbers.histograms.setdefault(name, {})
        known[own] = known[own] + histogram if own in known else histogram
    return numbers


def _stale_processes(entries: Sequence[tuple[Family, str, Mapping[str, str], float]]) -> set[str]:
    """Processes that are gone beside one that lives: what they counted counts, their state is over."""
    flushed = {
        labels.get("process", ""): value
        for family, _, labels, value in entries
        if family.name == PREFIX + _FLUSHED
    }  # fmt: skip
    newest = max(flushed.values(), default=0.0)
    return {process for process, time_s in flushed.items() if time_s < newest - _STALE_S}


def _joined(name: str, kind: Kind, a: float, b: float) -> float:
    if kind is Kind.COUNTER or name in _ADDED:
        return a + b
    return min(a, b) if name in _LOWEST else max(a, b)


def _numbers_json(numbers: Numbers) -> dict[str, Any]:
    return {
        "values": {
            name: [[list(own), value] for own, value in table.items()] for name, table in numbers.values.items()
        },
        "histograms": {
            name: [[list(own), [[_bound(b), c] for b, c in _pairs(each)], each.sum] for own, each in table.items()]
            for name, table in numbers.histograms.items()
        },
    }


def _pairs(histogram: Histogram) -> Iterator[tuple[float, float]]:
    return zip(histogram.bounds, histogram.counts, strict=True)


def _bound(value: float) -> float | str:
    return "+Inf" if value == math.inf else value


def _numbers_of(data: Mapping[str, Any]) -> Numbers:
    return Numbers(
        values={
            name: {tuple(map(str, own)): float(value) for own, value in entries}
            for name, entries in data["values"].items()
        },
        histograms={
            name: {
                tuple(map(str, own)): Histogram(
                    tuple(float(bound) for bound, _ in pairs), tuple(float(n) for _, n in pairs), float(total)
                )
                for own, pairs, total in entries
            }
            for name, entries in data["histograms"].items()
        },
    )
