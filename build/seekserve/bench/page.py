"""The HTML page of live runs, in the form of the simulator's: what it came to, then the figures, then each run over
time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from seekserve.simulate.html import page, paragraph, section, table
from seekserve.simulate.measure import tpot_ms
from seekserve.simulate.records import Outcome
from seekserve.simulate.stats import percentile
from seekserve.simulate.svg import Series, chart

from .knee import Knee
from .results import LiveResult

__all__ = ["live_page", "over_time"]

_WINDOWS = 30
_LEAST_TPOT_MS = 0.2
_HEAD = ("run", "req/s", "goodput/s", "attainment", "refused", "TTFT p99 s", "TPOT p99 ms", "lag p99 ms", "valid")


def live_page(results: Sequence[LiveResult], knee: Knee | None = None) -> str:
    best = max(results, key=lambda result: result.figures.goodput_rps)
    answer = [
        (
            f"Measured on {best.model} at {best.url}; the most goodput was {best.figures.goodput_rps:.3f} requests/s "
            f"with {best.figures.urgent_rps:.3f} urgent requests/s offered."
        )
    ]
    if knee is not None:
        answer.append(knee.text(0.9))
    invalid = [result for result in results if not result.lag.is_valid]
    if invalid:
        answer.append(f"{len(invalid)} of {len(results)} runs are not valid: the client itself was too slow.")
    return page(
        "Live measurement", answer, [_figures(results), *(over_time(result, _name(result)) for result in results)]
    )


def _figures(results: Sequence[LiveResult]) -> str:
    rows = []
    for result in results:
        f = result.figures
        numbers = (f.offered_rps, f.goodput_rps, f.attainment, f.shed_ratio, f.ttft_p99_s, f.tpot_p99_ms)
        cells = [_name(result), *(f"{number:.3f}" for number in numbers), f"{result.lag.worst_ms:.1f}"]
        rows.append([*cells, "yes" if result.lag.is_valid else "NO"])
    return section("Figures", table(_HEAD, rows))


def over_time(result: LiveResult, title: str) -> str:
    """Its section: is it valid, and how it went."""
    x = "seconds of the run"
    return section(
        title,
        paragraph(result.lag.verdict),
        chart("Time to first token, P90", x, "seconds", _by_class(result, _ttft_s)),
        chart("Time per output token, P90", x, "ms", _by_class(result, _streamed_tpot_ms)),
    )


def _name(result: LiveResult) -> str:
    return f"{result.label}, {result.trace} at {result.figures.offered_rps:.2f}/s"


def _is_streamed(outcome: Outcome) -> bool:
    """What comes all at once has no first token of its own; no engine makes a token in less than `_LEAST_TPOT_MS`."""
    ms = tpot_ms(outcome)
    return ms is None or ms >= _LEAST_TPOT_MS


def _ttft_s(outcome: Outcome) -> float | None:
    return outcome.first_s - outcome.asked_s if outcome.first_s is not None and _is_streamed(outcome) else None


def _streamed_tpot_ms(outcome: Outcome) -> float | None:
    return tpot_ms(outcome) if _is_streamed(outcome) else None


def _by_class(result: LiveResult, value: Callable[[Outcome], float | None]) -> list[Series]:
    """Without those that have no number; each looks the same on every chart."""
    names = sorted({outcome.arrival.request_class for outcome in result.recording.outcomes})
    made = [_windows(result, value, name, style) for style, name in enumerate(names)]
    return [series for series in made if any(math.isfinite(y) for _, y in series.points)]


def _windows(result: LiveResult, value: Callable[[Outcome], float | None], name: str, style: int) -> Series:
    outcomes = result.recording.outcomes
    width_s = max(outcomes[-1].arrival.time_s / _WINDOWS, 1.0)
    found: list[list[float]] = [[] for _ in range(int(outcomes[-1].arrival.time_s / width_s) + 1)]
    for outcome in outcomes:
        is_counted = outcome.state == "finished" and outcome.arrival.request_class == name
        number = value(outcome) if is_counted else None
        if number is not None:
            found[int(outcome.arrival.time_s / width_s)].append(number)
    points = [((n + 0.5) * width_s, percentile(values, 0.9)) for n, values in enumerate(found)]
    return Series(name, points, has_dots=True, style=style)
