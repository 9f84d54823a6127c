"""A soak as text, as JSON and as a page: passed or not, which check did not hold, then the figures. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seekserve.bench.page import over_time
from seekserve.bench.results import LiveResult
from seekserve.output import json_text
from seekserve.simulate.html import page, section, table

from .checks import Check

__all__ = ["Phase", "Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    name: str
    does: str
    result: LiveResult
    checks: tuple[Check, ...]
    facts: tuple[tuple[str, str], ...] = ()
    """What else was seen, as (name, value)."""

    @property
    def is_ok(self) -> bool:
        return all(check.is_ok for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    size: str
    subject: str
    """What was tried."""
    slo: str
    phases: tuple[Phase, ...]

    @property
    def is_ok(self) -> bool:
        return all(phase.is_ok for phase in self.phases)

    @property
    def failed(self) -> list[tuple[str, Check]]:
        return [(phase.name, check) for phase in self.phases for check in phase.checks if not check.is_ok]

    def answer(self) -> list[str]:
        """It comes first."""
        total = sum(len(phase.checks) for phase in self.phases)
        if self.is_ok:
            return [f"PASSED: soak {self.size} of {self.subject}; all {total} checks hold."]
        first = f"FAILED: soak {self.size} of {self.subject}; {len(self.failed)} of {total} checks do not hold."
        return [first, *(f"{name}: {_sentence(check)}" for name, check in self.failed)]

    def text(self) -> str:
        lines = self.answer()
        lines = [lines[0], *(f"  {line}" for line in lines[1:]), f"promised: {self.slo}"]
        for phase in self.phases:
            lines += ["", f"{phase.name}: {phase.does}"]
            wide = max(len(check.name) for check in phase.checks)
            lines += [
                f"  {'ok  ' if check.is_ok else 'FAIL'}  {check.name:<{wide}}  {check.measured} ({check.allowed})"
                for check in phase.checks
            ]
            lines += [f"        {name:<{wide}}  {value}" for name, value in (*_figures(phase.result), *phase.facts)]
        return "\n".join(lines)

    def to_json(self) -> str:
        return json_text(
            {
                "passed": self.is_ok,
                "size": self.size,
                "subject": self.subject,
                "slo": self.slo,
                "phases": [
                    {
                        "name": phase.name,
                        "passed": phase.is_ok,
                        "checks": [check.to_json() for check in phase.checks],
                        "facts": dict(phase.facts),
                    }
                    for phase in self.phases
                ],
                # In the order of the phases, and in the form that `bench --compare` lays side by side.
                "runs": [phase.result.to_json() for phase in self.phases],
            }
        )

    def html(self) -> str:
        found = [(phase.name, check) for phase in self.phases for check in phase.checks]
        rows = [
            (name, check.name, check.measured, check.allowed, "yes" if check.is_ok else "NO") for name, check in found
        ]
        failed = [n for n, (_, check) in enumerate(found) if not check.is_ok]
        head = ("phase", "check", "measured", "allowed", "holds")
        checks = section("Checks", table(head, rows, marked=failed, is_words=True))
        figures = section("Figures", *(_phase_table(phase) for phase in self.phases))
        return page(
            f"Soak {self.size}: {'passed' if self.is_ok else 'FAILED'}",
            [*self.answer(), f"Promised: {self.slo}."],
            [checks, *(over_time(phase.result, phase.name) for phase in self.phases), figures],
        )


def _phase_table(phase: Phase) -> str:
    rows = [*_figures(phase.result), *phase.facts]
    return table((phase.name, phase.does), rows, is_words=True)


def _sentence(check: Check) -> str:
    return f"{check.name}: {check.measured}, allowed is {check.allowed}"


def _figures(result: LiveResult) -> Sequence[tuple[str, str]]:
    f, states = result.figures, Counter(outcome.state for outcome in result.recording.outcomes)
    counts = ", ".join(f"{n} {state}" for state, n in sorted(states.items(), key=lambda each: -each[1]))
    return (
        ("requests", f"{len(result.recording.outcomes)} in {result.recording.end_s:.0f} s: {counts}"),
        ("goodput", f"{f.goodput_rps:.2f} of {f.urgent_rps:.2f} urgent requests/s"),
        ("TTFT P50, P90, P99", _three(f.ttft_p50_s, f.ttft_p90_s, f.ttft_p99_s, "s", 3)),
        ("TPOT P50, P90, P99", _three(f.tpot_p50_ms, f.tpot_p90_ms, f.tpot_p99_ms, "ms", 1)),
    )


def _three(a: float, b: float, c: float, unit: str, digits: int) -> str:
    texts = ("-" if math.isnan(each) else f"{each:.{digits}f}" for each in (a, b, c))
    return f"{', '.join(texts)} {unit}"
