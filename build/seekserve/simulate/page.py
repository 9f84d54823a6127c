"""The HTML page of a sweep: which policy carries how much, then load against worth, then one run over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .html import page, paragraph, section, table
from .knees import by_line, knees
from .measure import tpot_ms
from .records import Outcome, Sample
from .report import COLUMNS
from .stats import mean, percentile
from .svg import Series, chart
from .sweep import Result

__all__ = ["sweep_page"]

_WINDOWS = 60


def sweep_page(results: Sequence[Result]) -> str:
    """`results` with their samples."""
    traces = list(dict.fromkeys(result.case.trace.name for result in results))
    of_trace = {name: [result for result in results if result.case.trace.name == name] for name in traces}
    sections = [_conditions(results)]
    for name, mine in of_trace.items():
        sections += [_load_section(name, mine), _time_section(name, mine)]
    sections.append(_figures(results))
    answer = [_answer(name, mine) for name, mine in of_trace.items()]
    return page("What each policy carries", answer, sections)


def _answer(trace: str, results: Sequence[Result]) -> str:
    found = {policy: (rate, held) for (_, policy), (rate, held) in knees(results).items()}
    order = sorted(found, key=lambda policy: -found[policy][0] if not math.isnan(found[policy][0]) else 0.0)
    texts = []
    for policy in order:
        rate, held = found[policy]
        texts.append(f"{policy} " + ("never" if math.isnan(rate) else f"{'at least ' if held else ''}{rate:.2f}"))
    loads = ", ".join(texts)
    return f"{trace}: offered load, in requests/s, at which 90 % of urgent requests meet their targets: {loads}."


def _conditions(results: Sequence[Result]) -> str:
    case = results[0].case
    engine, clients = case.engine, case.clients
    known = "none" if engine.controller is None else engine.controller.source
    seeds = len({result.case.seed for result in results})
    rows = [
        ("engine (simulated, not measured)", engine.plant.source),
        ("model that the scheduler was given", known),
        (
            "engine slower than its model",
            f"{engine.slowdown:g} times, from {100.0 * engine.slow_from_part:g} % of the time",
        ),
        ("noise of step times", f"{100.0 * engine.noise:g} %"),
        ("KV cache", f"{engine.kv.capacity_blocks * engine.kv.block_tokens:,} tokens"),
        ("arrivals", f"{case.load.process}, {seeds} seeds, paired"),
        ("clients", f"{clients.retries} retries, {'by the hint' if clients.honours_hint else 'ignoring the hint'}"),
        ("replicas", f"{case.replicas}, {case.router}" if case.replicas > 1 else "1"),
    ]
    return section("What was simulated", table(("", ""), rows))


def _load_section(trace: str, results: Sequence[Result]) -> str:
    marks = knees(results)

    def curves(name: str) -> list[Series]:
        points: dict[str, list[tuple[float, float]]] = {}
        for (_, _, policy), same in by_line(results).items():
            offered = mean([r.figures.offered_rps for r in same])
            points.setdefault(policy, []).append((offered, mean([getattr(r.figures, name) for r in same])))
        return [
            Series(_with_knee(policy, marks[trace, policy]), sorted(at), mark_x=marks[trace, policy][0], has_dots=True)
            for policy, at in points.items()
        ]

    x = "offered load [requests/s, all classes]"
    return section(
        f"{trace}: worth by load",
        paragraph(f"{results[0].case.slo.name}. Upright lines and numbers: load up to which attainment stays at 90 %."),
        chart("Goodput", x, "good urgent requests/s", curves("goodput_rps")),
        chart("Attainment", x, "part of urgent requests", curves("attainment"), y_high=1.0, level=0.9),
    )


def _with_knee(policy: str, knee: tuple[float, bool]) -> str:
    rate, held = knee
    return policy if math.isnan(rate) else f"{policy}: {rate:.2f}{'+' if held else ''}"


def _time_section(trace: str, results: Sequence[Result]) -> str:
    """The first seed at the highest load."""
    most = max(result.case.load.speed for result in results)
    shown = [
        r for r in results if r.case.load.speed == most and r.case.seed == results[0].case.seed and r.run is not None
    ]
    x = "time [s]"
    tpot_level = min((c.tpot_ms for c in shown[0].case.slo.classes.values() if c.tpot_ms), default=None)
    return section(
        f"{trace}: at {most:g} times its speed, over time",
        paragraph("First-token times and times per output token are of finished urgent requests, by arrival."),
        chart("TTFT, P50", x, "seconds", _windows(shown, _ttft_s, 0.5)),
        chart("TTFT, P99", x, "seconds", _windows(shown, _ttft_s, 0.99)),
        chart("TPOT, P99", x, "milliseconds", _windows(shown, tpot_ms, 0.99), level=tpot_level),
        chart("Waiting requests", x, "requests", _sampled(shown, lambda s: s.queued)),
        chart("Running requests", x, "requests", _sampled(shown, lambda s: s.running)),
        chart("KV cache in use", x, "part of the cache", _sampled(shown, lambda s: s.kv_share), y_high=1.0),
        chart("Rung of the pressure ladder", x, "rung", _sampled(shown, lambda s: s.rung), y_high=5.0),
    )


def _ttft_s(outcome: Outcome) -> float | None:
    return None if outcome.first_s is None else outcome.first_s - outcome.asked_s


def _windows(results: Sequence[Result], value: Callable[[Outcome], float | None], part: float) -> list[Series]:
    out = []
    for result in results:
        assert result.run is not None
        outcomes, slo = result.run.outcomes, result.case.slo
        width_s = max(outcomes[-1].arrival.time_s / _WINDOWS, 1.0)
        found: list[list[float]] = [[] for _ in range(int(outcomes[-1].arrival.time_s / width_s) + 1)]
        for outcome in outcomes:
            number = value(outcome) if outcome.state == "finished" else None
            if number is not None and not slo.classes[outcome.arrival.request_class].is_offline:
                found[int(outcome.arrival.time_s / width_s)].append(number)
        points = [((n + 0.5) * width_s, percentile(values, part)) for n, values in enumerate(found)]
        out.append(Series(result.case.policy, points))
    return out


def _sampled(results: Sequence[Result], value: Callable[[Sample], float]) -> list[Series]:
    """Thinned to what a chart can show; a series that has no numbers is left out."""
    out = []
    for style, result in enumerate(results):
        samples = result.run.samples if result.run is not None else []
        step = max(1, len(samples) // 400)
        points = [(sample.time_s, float(value(sample))) for sample in samples[::step]]
        if any(math.isfinite(y) for _, y in points):
            out.append(Series(result.case.policy, points, style=style))
    return out


def _figures(results: Sequence[Result]) -> str:
    head = ["trace, policy", "speed", *(name for name, _, _ in COLUMNS)]
    rows = []
    for (trace, speed, policy), same in by_line(results).items():
        figures = [result.figures for result in same]
        rows.append([f"{trace}, {policy}", f"{speed:g}", *(text(figures) for _, _, text in COLUMNS)])
    return section("Figures", paragraph("Means over seeds with 95 % bootstrap intervals."), table(head, rows))
