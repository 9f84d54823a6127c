"""Open-loop arrivals: a trace at another speed, or other gaps between its requests; then classes and tenants by lot.

The same seed gives the same list, whatever policy it is for, so that runs are paired.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from seekserve.errors import InputError

from .records import Arrival
from .slo import SloFile
from .traces import TraceRow

__all__ = ["PROCESSES", "Load", "make_arrivals", "parse_shares", "surge_window_s"]

PROCESSES = ("trace", "poisson", "gamma", "onoff", "surge")
_SURGE_BEGINS = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How a trace is turned into arrivals."""

    speed: float = 1.0
    """Times as fast as recorded."""
    process: str = "trace"
    """Gaps: as recorded (`trace`, and `surge`, which squeezes them for a while), or drawn around the same mean."""
    gap_cv: float = 3.0
    """Standard deviation over mean of gaps, for `gamma`."""
    period_s: float = 60.0
    """Of the surge; of one on and one off phase together."""
    factor: float = 3.0
    """Rate of the surge over the rest; of the on phase over the off phase."""
    tenants: Mapping[str, float] | None = None
    """name -> share of the requests."""
    reuses_prefixes: bool = True
    long_share: float = 0.0
    """Part of the requests, by lot, whose prompt is made `long_tokens` long."""
    long_tokens: int = 32_768


def make_arrivals(rows: Sequence[TraceRow], slo: SloFile, load: Load, *, seed: int) -> list[Arrival]:
    if load.process not in PROCESSES:
        raise InputError(f"--arrivals {load.process!r} is not known", hint=f"one of {', '.join(PROCESSES)}")
    lot = random.Random(f"classes-{seed}")
    names, shares = [*slo.classes], [rules.share for rules in slo.classes.values()]
    who, weights = [*(load.tenants or {"": 1.0})], [*(load.tenants or {"": 1.0}).values()]
    out = []
    for row, time_s in zip(rows, _times_s(rows, load, seed), strict=True):
        request_class, tenant = lot.choices(names, shares)[0], lot.choices(who, weights)[0]
        is_long = load.long_share > 0.0 and lot.random() < load.long_share
        reuses = load.reuses_prefixes and not is_long
        out.append(
            Arrival(
                time_s=time_s,
                prompt_tokens=load.long_tokens if is_long else row.prompt_tokens,
                output_tokens=min(row.output_tokens, slo.max_tokens),
                request_class=request_class,
                max_tokens=slo.max_tokens,
                tenant=tenant,
                cached_tokens=row.cached_tokens if reuses else 0,
                blocks=row.blocks if reuses else (),
            )
        )
    return out


def surge_window_s(rows: Sequence[TraceRow], load: Load) -> tuple[float, float] | None:
    """When the surge begins and ends, on the clock of the arrivals."""
    if load.process != "surge":
        return None
    start_s = _SURGE_BEGINS * rows[-1].time_s / load.speed
    return start_s, start_s + load.period_s


def _times_s(rows: Sequence[TraceRow], load: Load, seed: int) -> Iterator[float]:
    if load.process == "trace" or len(rows) < 2:
        return (row.time_s / load.speed for row in rows)
    return _squeezed_s(rows, load) if load.process == "surge" else _drawn_s(rows, load, seed)


def _squeezed_s(rows: Sequence[TraceRow], load: Load) -> Iterator[float]:
    start_s, end_s = surge_window_s(rows, load) or (0.0, 0.0)
    now = before_s = 0.0
    for row in rows:
        left_s, before_s = (row.time_s - before_s) / load.speed, row.time_s
        while left_s > 0.0:  # a gap may reach over the edge of the surge
            edge_s = start_s if now < start_s else end_s if now < end_s else float("inf")
            rate = load.factor if start_s <= now < end_s else 1.0
            if now + left_s / rate < edge_s:
                now, left_s = now + left_s / rate, 0.0
            else:
                now, left_s = edge_s, left_s - (edge_s - now) * rate
        yield now


def _drawn_s(rows: Sequence[TraceRow], load: Load, seed: int) -> Iterator[float]:
    lot = random.Random(f"{load.process}-{seed}")
    mean_s = rows[-1].time_s / (len(rows) - 1) / load.speed
    now = 0.0
    for _ in rows:
        yield now
        if load.process == "gamma":
            shape = 1.0 / (load.gap_cv * load.gap_cv)
            now += lot.gammavariate(shape, mean_s / shape)
        elif load.process == "onoff":
            is_on = int(2.0 * now / load.period_s) % 2 == 0
            off_rate = 2.0 / ((1.0 + load.factor) * mean_s)
            now += lot.expovariate(load.factor * off_rate if is_on else off_rate)
        else:
            now += lot.expovariate(1.0 / mean_s)


def parse_shares(text: str) -> dict[str, float]:
    """`a=10,b=1`: names and how many requests each has for one of the others."""
    shares = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            share = float(number or 1.0)
        except ValueError:
            share = 0.0
        if not name or not 0.0 < share < 1e9:
            raise InputError(f"--tenants: {part!r} is not NAME=SHARE with a share above 0", hint="for example a=10,b=1")
        shares[name] = share
    return shares
