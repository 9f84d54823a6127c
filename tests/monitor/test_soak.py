"""What passes and what does not, and that the report says so first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve.bench.openloop import Recording, Refusal
from seekserve.bench.results import LiveResult, judge
from seekserve.monitor.soak import stand
from seekserve.monitor.soak.checks import (
    Bounds,
    Check,
    books_check,
    drill_checks,
    overload_checks,
    planned_checks,
)
from seekserve.monitor.soak.drills import DRILLS, Seen, chosen, kill_stubs
from seekserve.monitor.soak.report import Phase, Report
from seekserve.simulate.records import Arrival, Outcome
from seekserve.simulate.slo import ClassSlo, SloFile

SLO = SloFile(name="test", classes={"fast": ClassSlo(share=0.8, ttft_ms=500.0, tpot_ms=50.0),
                                    "slow": ClassSlo(share=0.2, e2e_ms=60_000.0)})  # fmt: skip
BOUNDS = Bounds()


def outcome(n: int, *, state: str = "finished", first_s: float = 0.1, hint_ms: int | None = None) -> Outcome:
    asked_s = n / 2.0
    arrival = Arrival(asked_s, 100, 11, "slow" if n % 5 == 4 else "fast", 20)
    made = Outcome(arrival, asked_s=asked_s, released_s=asked_s, state=state, hint_ms=hint_ms)
    if state == "finished":
        made.first_s, made.end_s, made.tokens = asked_s + first_s, asked_s + first_s + 0.3, 11
    elif state != "open":
        made.end_s = asked_s + 0.01
    return made


def result(
    change: Callable[[int], dict[str, object]] = lambda n: {}, *, lag_ms: float = 1.0, surge_s: float | None = None
) -> LiveResult:
    outcomes = [outcome(n, **change(n)) for n in range(140)]  # type: ignore[arg-type]
    recording = Recording(outcomes, end_s=71.0, send_lag_ms=[lag_ms] * 9, loop_lag_ms=[lag_ms] * 9, sent=140)
    recording.cut_off = sum(each.state == "open" for each in outcomes)
    recording.refusals = [
        Refusal(100, "overloaded", 10.0, 5.0) for each in outcomes if each.state == "refused"
    ]  # fmt: skip
    window = None if surge_s is None else (surge_s, surge_s)
    return judge(recording, SLO, label="x", trace="t", url="h:1", model="m", surge_s=window, warmup_s=10.0)


def failed(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if not check.is_ok}


def test_a_good_run_passes() -> None:
    assert failed(planned_checks(result(), SLO, BOUNDS)) == set()
    assert failed(overload_checks(result(), result(), BOUNDS)) == set()
    assert failed(drill_checks(result(surge_s=20.0), BOUNDS, warmup_s=0.0, fault_s=20.0)) == set()


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("every request got an answer", lambda: result(lambda n: {"state": "open"} if n == 100 else {})),
        ("requests that failed", lambda: result(lambda n: {"state": "failed"} if n == 100 else {})),
        ("fast within its targets", lambda: result(lambda n: {"first_s": 2.0} if n % 5 == 0 else {})),
        ("slow within its targets", lambda: result(lambda n: {"state": "expired"} if n % 5 == 4 else {})),
        ("the measurement is valid", lambda: result(lag_ms=80.0)),
    ],
)
def test_each_check_of_the_planned_load_can_fail_alone(name: str, made: Callable[[], LiveResult]) -> None:
    assert failed(planned_checks(made(), SLO, BOUNDS)) == {name}


def test_of_a_class_without_a_request_nothing_is_known() -> None:
    lonely = replace(SLO, classes={**SLO.classes, "rare": ClassSlo(share=0.1, ttft_ms=1.0)})
    assert failed(planned_checks(result(), lonely, BOUNDS)) == {"rare within its targets"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("goodput under overload", lambda n: {"first_s": 2.0} if n % 2 else {}),
        ("refusals say when to come back", lambda n: {"state": "refused"} if n % 9 == 0 else {}),
    ],
)
def test_each_check_of_the_overload_can_fail_alone(name: str, change: Callable[[int], dict[str, object]]) -> None:
    assert failed(overload_checks(result(change), result(), BOUNDS)) == {name}


def test_refusals_with_a_hint_are_no_failure_but_late_ones_are() -> None:
    refused = result(lambda n: {"state": "refused", "hint_ms": 900} if n % 9 == 0 else {})
    assert failed(overload_checks(refused, result(), BOUNDS)) == set()
    for each in refused.recording.refusals:
        object.__setattr__(each, "sent_ms", 3000.0)
    assert failed(overload_checks(refused, result(), BOUNDS)) == {"time until a refusal is told, P99"}


def test_a_drill_that_never_recovers_fails() -> None:
    ill = result(lambda n: {"state": "failed"} if n >= 40 else {}, surge_s=20.0)
    assert failed(drill_checks(ill, BOUNDS, warmup_s=0.0, fault_s=20.0)) == {"recovered"}


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 100))
def test_books(offered: int, ended: int, inside: int, sent: int) -> None:
    is_ok = books_check(float(offered), float(ended), float(inside), sent).is_ok
    assert is_ok is (offered == ended + inside and offered >= sent)
    assert not books_check(None, 1.0, 1.0, 1).is_ok


def report_of(*runs: LiveResult) -> Report:
    phases = [
        Phase(name=f"p{n}", does="a load", result=run, checks=tuple(planned_checks(run, SLO, BOUNDS)))
        for n, run in enumerate(runs)
    ]
    return Report(size="smoke", subject="m at h:1", slo="test", phases=tuple(phases))


def test_the_report_says_first_whether_it_passed_and_what_did_not_hold() -> None:
    good, bad = report_of(result()), report_of(result(), result(lambda n: {"state": "failed"} if n == 9 else {}))
    assert good.text().startswith("PASSED: soak smoke of m at h:1; all 5 checks hold.")
    assert bad.text().splitlines()[:2] == [
        "FAILED: soak smoke of m at h:1; 1 of 10 checks do not hold.",
        "  p1: requests that failed: 1 of 140, allowed is none",
    ]
    body = json.loads(bad.to_json())
    assert (body["passed"], [phase["passed"] for phase in body["phases"]]) == (False, [True, False])
    assert body["runs"][0]["attainment"] == 1.0
    page = bad.html()
    assert page.index("FAILED: soak smoke") < page.index("<table")
    assert "requests that failed" in page
    assert "<script" not in page


def test_drills_are_chosen_by_name() -> None:
    assert chosen(None) == list(DRILLS)
    assert [drill.name for drill in chosen(["kill", "raise"])] == ["kill", "raise"]
    with pytest.raises(KeyError, match="flood"):
        chosen(["flood"])


def test_who_was_told_first_counts_from_the_fault() -> None:
    run = result(lambda n: {"state": "refused"} if n in (3, 50) else {})
    seen = Seen(struck_s=120.0, recordings=[run.recording])
    run.recording.started_s = 100.0
    assert (seen.fault_s, round(seen.told_s, 3)) == (20.0, 5.01)


def test_nobody_is_killed_where_nobody_beats(tmp_path: Path) -> None:
    assert kill_stubs(tmp_path) == 0


def test_made_up_requests_are_of_a_conversation_s_size() -> None:
    rows = stand.made_up_rows(2000)
    assert rows == stand.made_up_rows(2000)
    assert 900 < sorted(row.prompt_tokens for row in rows)[1000] < 1150
    assert all(16 <= row.prompt_tokens <= 8000 and 1 <= row.output_tokens <= 500 for row in rows)
    arrivals = stand.arrivals_for(rows, 3.0, 60.0, 1)
    assert {each.request_class for each in arrivals} == set(stand.SLO.classes)
    assert 120 < len(arrivals) < 250
