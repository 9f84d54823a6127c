"""What to send and when: arrivals as the simulator makes them, from a trace or at a rate, cut to the time there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seekserve.errors import InputError
from seekserve.simulate.arrivals import Load, make_arrivals
from seekserve.simulate.records import Arrival
from seekserve.simulate.slo import ClassSlo, SloFile
from seekserve.simulate.traces import TraceRow, read_trace

__all__ = ["DEFAULT_SLO", "Source", "arrivals_at", "fixed_source", "trace_source"]

DEFAULT_SLO = SloFile(
    name="default",
    classes={"interactive": ClassSlo(share=1.0, ttft_ms=1000.0, ttft_ms_per_token=0.25, tpot_ms=50.0)},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Requests with their lengths, in the order in which they are sent."""

    name: str
    rows: Sequence[TraceRow]

    @property
    def rate_rps(self) -> float:
        """As recorded."""
        span_s = self.rows[-1].time_s - self.rows[0].time_s
        return (len(self.rows) - 1) / span_s if span_s > 0.0 else 1.0


def trace_source(
    path: Path, columns: Mapping[str, str] | None = None, *, seed: int, skip: int = 0, rows: int | None = None
) -> Source:
    trace = read_trace(path, columns, skip=skip, rows=rows)
    return Source(name=trace.name, rows=trace.rows(seed))


def fixed_source(*, prompt_tokens: int, output_tokens: int, requests: int) -> Source:
    """One request a second, all alike; another rate is another speed."""
    rows = [TraceRow(float(n), prompt_tokens, output_tokens) for n in range(requests)]
    return Source(name=f"{prompt_tokens}-{output_tokens}", rows=rows)


def arrivals_at(source: Source, slo: SloFile, load: Load, *, seed: int, duration_s: float | None) -> list[Arrival]:
    """Those that arrive within `duration_s`; the times begin at 0. The same seed gives the same list."""
    made = make_arrivals(source.rows, slo, load, seed=seed)
    kept = [each for each in made if duration_s is None or each.time_s <= duration_s]
    if len(kept) < 2:
        raise InputError(
            f"{len(kept)} of {len(made)} requests arrive within {duration_s or 0.0:g} s, and a run needs two",
            hint="a longer --duration-s, or a higher --rate or --speed",
        )
    start_s = kept[0].time_s
    return [replace(each, time_s=each.time_s - start_s) for each in kept]
