"""The page of live runs: what was not streamed has no first token of its own, and each class a line of its own."""

from __future__ import annotations

from seekserve.bench.openloop import Recording
from seekserve.bench.page import over_time
from seekserve.bench.results import judge
from seekserve.simulate.records import Arrival, Outcome
from seekserve.simulate.slo import ClassSlo, SloFile

SLO = SloFile(
    name="test",
    classes={"fast": ClassSlo(share=0.5, ttft_ms=500.0), "whole": ClassSlo(share=0.5, e2e_ms=60_000.0)},
)


def test_only_streams_are_drawn_by_their_tokens() -> None:
    outcomes = []
    for n in range(20):
        name = "whole" if n % 2 else "fast"
        outcome = Outcome(Arrival(float(n), 10, 11, name, 20), asked_s=float(n), state="finished", tokens=11)
        outcome.first_s, outcome.end_s = n + 0.2, n + (0.2001 if n % 2 else 0.7)
        outcomes.append(outcome)
    recording = Recording(outcomes, end_s=21.0, send_lag_ms=[1.0], loop_lag_ms=[1.0], sent=20)
    page = over_time(judge(recording, SLO, label="x", trace="t"), "a run")
    assert page.count(">fast</text>") == 2
    assert ">whole</text>" not in page
