"""What a soak has to show to pass: each check with what was measured, what was allowed, and whether it holds. Pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from seekserve.bench.results import LiveResult
from seekserve.simulate.measure import Figures
from seekserve.simulate.slo import SloFile
from seekserve.simulate.stats import percentile

__all__ = ["Bounds", "Check", "books_check", "drill_checks", "overload_checks", "planned_checks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    share: float = 0.9
    """Of the requests of each class that have to meet their targets."""
    failed_share: float = 0.0
    """Of requests that may fail at the planned load."""
    kept_goodput: float = 0.7
    """Of the planned goodput that twice the load has to leave."""
    refusal_s: float = 1.0
    """P99 of the time until a refusal at arrival is told."""
    recovery_s: float = 60.0
    """From a fault until nine tenths of what arrives within ten seconds are good again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    measured: str
    allowed: str
    is_ok: bool

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "measured": self.measured, "allowed": self.allowed, "ok": self.is_ok}


def planned_checks(result: LiveResult, slo: SloFile, bounds: Bounds) -> list[Check]:
    """At a load that was planned for: everything is answered, and in time."""
    return [
        _valid(result),
        _answered(result),
        _failed(result, bounds.failed_share),
        *_attained(result.figures, slo, bounds.share),
    ]


def overload_checks(result: LiveResult, planned: LiveResult, bounds: Bounds) -> list[Check]:
    """At more than was planned for: what cannot be served is told so at once, and the rest stays as good."""
    recording, figures = result.recording, result.figures
    kept = figures.goodput_rps / planned.figures.goodput_rps if planned.figures.goodput_rps > 0.0 else math.nan
    told = [o for o in recording.outcomes if o.state in ("refused", "expired")]
    hinted = sum(o.hint_ms is not None for o in told)
    refusal_s = percentile([each.sent_ms / 1000.0 for each in recording.refusals if each.code != "expired"], 0.99)
    checks = [
        _valid(result),
        _answered(result),
        _failed(result, bounds.failed_share),
        Check(
            name="goodput under overload",
            measured=f"{figures.goodput_rps:.2f}/s, {kept:.0%} of planned",
            allowed=f"at least {bounds.kept_goodput:.0%} of planned",
            is_ok=kept >= bounds.kept_goodput,
        ),
        Check(
            name="refusals say when to come back",
            measured=f"{hinted} of {len(told)}",
            allowed="all",
            is_ok=hinted == len(told),
        ),
    ]
    if not math.isnan(refusal_s):
        checks.append(
            Check(
                name="time until a refusal is told, P99",
                measured=f"{refusal_s:.3f} s",
                allowed=f"at most {bounds.refusal_s:g} s",
                is_ok=refusal_s <= bounds.refusal_s,
            )
        )
    return checks


def drill_checks(result: LiveResult, bounds: Bounds, *, warmup_s: float, fault_s: float) -> list[Check]:
    """With something going wrong at `fault_s`: nobody is left without an answer, and it is over soon."""
    good_before = [
        o for o in result.recording.outcomes if warmup_s <= o.arrival.time_s < fault_s and o.state == "finished"
    ]  # fmt: skip
    recovery_s = result.figures.recovery_s
    finished = Counter(o.state for o in result.recording.outcomes)["finished"]
    return [
        _answered(result),
        Check(
            name="served before the fault",
            measured=f"{len(good_before)} requests",
            allowed="some",
            is_ok=bool(good_before),
        ),
        Check(
            name="recovered",
            measured="never within the run" if not math.isfinite(recovery_s) else f"after {recovery_s:.0f} s",
            allowed=f"within {bounds.recovery_s:g} s",
            is_ok=recovery_s <= bounds.recovery_s,
        ),
        Check(name="served in all", measured=f"{finished} requests", allowed="some", is_ok=finished > 0),
    ]


def books_check(offered: float | None, ended: float | None, inside: float | None, sent: int) -> Check:
    """The server's own count, by how much it grew: everything offered has ended or is still inside."""
    if offered is None or ended is None or inside is None:
        return Check(name="the server's books balance", measured="it publishes none", allowed="they do", is_ok=False)
    text = f"{offered:.0f} offered, {ended:.0f} ended, {inside:.0f} inside; {sent} sent from here"
    is_ok = offered == ended + inside and offered >= sent
    return Check(name="the server's books balance", measured=text, allowed="offered = ended + inside", is_ok=is_ok)


def _valid(result: LiveResult) -> Check:
    lag = result.lag
    return Check(
        name="the measurement is valid",
        measured=f"own delay {lag.worst_ms:.1f} ms at P99",
        allowed=f"at most {lag.bound_ms:.0f} ms",
        is_ok=lag.is_valid,
    )


def _answered(result: LiveResult) -> Check:
    recording = result.recording
    lost = recording.unanswered + recording.cut_off
    return Check(
        name="every request got an answer",
        measured=f"{lost} of {len(recording.outcomes)} without",
        allowed="none without",
        is_ok=lost == 0,
    )


def _failed(result: LiveResult, most: float) -> Check:
    outcomes = result.recording.outcomes
    # A timeout is a failure to the client; it is counted as unanswered, once.
    failed = sum(o.state == "failed" for o in outcomes) - result.recording.unanswered
    share = failed / len(outcomes)
    what = next(iter(result.recording.failures), "")
    return Check(
        name="requests that failed",
        measured=f"{failed} of {len(outcomes)}{': ' + what if failed > 0 and what else ''}",
        allowed="none" if most == 0.0 else f"at most {most:.1%}",
        is_ok=share <= most,
    )


def _attained(figures: Figures, slo: SloFile, share: float) -> list[Check]:
    checks = []
    for name, promise in slo.classes.items():
        met = figures.attainment_by_class.get(name, math.nan)
        if promise.share <= 0.0 and math.isnan(met):
            continue
        checks.append(
            Check(
                name=f"{name} within its targets",
                measured="no request of it" if math.isnan(met) else f"{met:.1%}",
                allowed=f"at least {share:.0%}",
                is_ok=met >= share,
            )
        )
    return checks
