"""A sweep as text and as JSON: means over seeds with a bootstrap interval, a line for each trace, speed and policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from seekserve.output import json_text

from .knees import by_line, knees
from .measure import Figures
from .stats import interval, mean
from .sweep import Result

__all__ = ["COLUMNS", "sweep_data", "sweep_json", "sweep_text"]

_Column = tuple[str, int, Callable[[Sequence[Figures]], str]]


def _mean_of(name: str, form: str) -> Callable[[Sequence[Figures]], str]:
    def text(figures: Sequence[Figures]) -> str:
        value = mean([getattr(each, name) for each in figures])
        return "-" if math.isnan(value) else format(value, form)

    return text


def _with_interval(name: str, form: str) -> Callable[[Sequence[Figures]], str]:
    def text(figures: Sequence[Figures]) -> str:
        middle, low, high = interval([getattr(each, name) for each in figures])
        if len(figures) == 1:
            return format(middle, form)
        return f"{middle:{form}} ({low:{form}}-{high:{form}})"

    return text


COLUMNS: tuple[_Column, ...] = (
    ("req/s", 7, _mean_of("offered_rps", ".2f")),
    ("goodput/s", 18, _with_interval("goodput_rps", ".2f")),
    ("attainment", 20, _with_interval("attainment", ".3f")),
    ("shed", 6, _mean_of("shed_ratio", ".3f")),
    ("late", 6, _mean_of("expired_ratio", ".3f")),
    ("TTFT p99 s", 10, _mean_of("ttft_p99_s", ".2f")),
    ("TPOT p99 ms", 11, _mean_of("tpot_p99_ms", ".1f")),
    ("offline", 7, _mean_of("offline_attainment", ".3f")),
)


def sweep_text(results: Sequence[Result]) -> str:
    lines: list[str] = []
    trace = None
    wide = max(len(result.case.policy) for result in results)
    header = " ".join([f"{'policy':<{wide}} {'speed':>6}", *(f"{name:>{width}}" for name, width, _ in COLUMNS)])
    for (name, speed, policy), same in sorted(by_line(results).items(), key=lambda item: item[0][:2]):
        if name != trace:
            seeds = "1 seed" if len(same) == 1 else f"{len(same)} seeds"
            lines += ["", f"{name}: {same[0].case.slo.name}; {seeds}", header]
            trace = name
        figures = [result.figures for result in same]
        cells = [f"{text(figures):>{width}}" for _, width, text in COLUMNS]
        lines.append(" ".join([f"{policy:<{wide}} {speed:>6g}", *cells]))
    lines += ["", "load up to which 90 % of the urgent requests offered met their targets, in requests/s"]
    for (name, policy), (rate, held) in sorted(knees(results).items()):
        text = "not at any load tried" if math.isnan(rate) else f"{rate:.2f}" + (" or more" if held else "")
        lines.append(f"  {name}  {policy:<{wide}}  {text}")
    return "\n".join(lines).lstrip("\n")


def sweep_data(results: Sequence[Result]) -> dict[str, object]:
    found = [
        {
            "trace": trace,
            "policy": policy,
            "max_rps_at_90": None if math.isnan(rate) else round(rate, 3),
            "held_at_every_speed": held,
        }
        for (trace, policy), (rate, held) in sorted(knees(results).items())
    ]
    return {"runs": [result.to_json() for result in results], "knees": found}


def sweep_json(results: Sequence[Result]) -> str:
    return json_text(sweep_data(results))
