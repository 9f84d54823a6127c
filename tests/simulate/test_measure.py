"""Figures from outcomes that were written by hand."""

from __future__ import annotations

import math

import pytest

from seekserve.simulate.aftermath import recovery_s, rung_changes_per_min, settle_s
from seekserve.simulate.measure import Context, measure
from seekserve.simulate.price import Prices
from seekserve.simulate.records import Arrival, Outcome, Run, Sample
from seekserve.simulate.slo import SloFile
from seekserve.simulate.stats import interval, jain, max_min_shares, mean, percentile
from seekserve_backend.contract.step_model import StepModel


def outcome(
    at_s: float,
    kind: str = "interactive",
    state: str = "finished",
    *,
    ttft_s: float = 0.1,
    tokens: int = 11,
    tpot_s: float = 0.05,
    prompt: int = 100,
    tenant: str = "",
) -> Outcome:
    arrival = Arrival(at_s, prompt, tokens, kind, 50, tenant)
    if state != "finished":
        return Outcome(arrival, asked_s=at_s, state=state)
    first_s = at_s + ttft_s
    end_s = first_s + tpot_s * (tokens - 1)
    return Outcome(arrival, at_s, at_s + ttft_s / 2, first_s, end_s, tokens, state=state)


def figures(outcomes: list[Outcome], slo: SloFile, model: StepModel, **more: object) -> dict[str, object]:
    run = Run(outcomes=outcomes, steps=1, busy_s=1.0, end_s=100.0, gaps_ms={10: 98, 200: 2})
    context = Context(slo=slo, prices=Prices(model, chunk_tokens=256), warmup_s=0.0, **more)  # type: ignore[arg-type]
    return measure(run, context).to_json()


def test_attainment_is_over_what_was_offered(slo: SloFile, model: StepModel) -> None:
    found = figures(
        [
            outcome(0.0),
            outcome(1.0, ttft_s=0.7),  # the target is 0.5 s + 1 ms for each of 100 tokens
            outcome(2.0, tpot_s=0.07),
            outcome(3.0, state="refused", prompt=3000),
            outcome(4.0, state="expired"),
            outcome(5.0, state="failed"),
            outcome(6.0, "offline"),
            outcome(10.0, prompt=3000),
        ],
        slo,
        model,
    )
    assert found["offered_rps"] == 0.8
    assert found["urgent_rps"] == 0.7
    assert found["goodput_rps"] == 0.2
    assert found["attainment"] == pytest.approx(2 / 7, abs=1e-5)
    assert found["shed_ratio"] == pytest.approx(1 / 7, abs=1e-5)
    assert found["expired_ratio"] == found["failed_ratio"] == found["shed_ratio"]
    assert found["shed_by_bucket"] == {"0-1k": 0.2, "2k-4k": 0.5}
    assert found["attainment_by_class"] == {"interactive": pytest.approx(2 / 7, abs=1e-5), "offline": 1.0}
    assert found["wasted_tokens"] == 22
    assert found["offline_attainment"] == 1.0
    assert found["ttft_p50_s"] == 0.1
    assert found["ttft_p99_s"] == 0.7
    assert found["tpot_p99_ms"] == 70.0
    assert found["itl_p99_ms"] == 200.0
    assert found["longest_wait_s"] == 0.35


def test_an_answer_of_one_token_is_judged_without_tpot(slo: SloFile, model: StepModel) -> None:
    found = figures([outcome(0.0, tokens=1), outcome(1.0, tokens=1)], slo, model)
    assert found["attainment"] == 1.0
    assert found["tpot_p99_ms"] is None


def test_requests_of_the_warm_up_do_not_count(slo: SloFile, model: StepModel) -> None:
    run = Run(outcomes=[outcome(0.0, state="refused"), outcome(99.0), outcome(100.0)], steps=1, busy_s=1.0, end_s=100.0)
    found = measure(run, Context(slo=slo, prices=Prices(model, chunk_tokens=256)))
    assert found.attainment == 1.0
    assert found.offered_rps == pytest.approx(2 / (200.0 / 3.0))


def test_tries_that_were_given_up_are_waste(slo: SloFile, model: StepModel) -> None:
    late = outcome(1.0)
    late.wasted_tokens, late.tries = 7, 2
    found = figures([outcome(0.0), late], slo, model)
    assert found["wasted_tokens"] == 7
    assert found["tries"] == 1.5


def test_fairness_is_against_what_each_is_entitled_to(slo: SloFile, model: StepModel) -> None:
    """The small one asks for little and gets it: fair, though the big one has ten times as much."""
    small = [outcome(float(n), tenant="small") for n in range(2)]
    big = [outcome(float(n), tenant="big", state="finished" if n < 4 else "refused") for n in range(20)]
    rows = sorted([*small, *big], key=lambda o: o.arrival.time_s)
    end = outcome(30.0, tenant="big", state="refused")
    assert figures([*rows, end], slo, model)["jain"] == pytest.approx(1.0)
    starved = [outcome(float(n), tenant="small", state="refused") for n in range(2)]
    rows = sorted([*starved, *big], key=lambda o: o.arrival.time_s)
    assert figures([*rows, end], slo, model)["jain"] == pytest.approx(0.5)


def test_recovery_is_from_the_end_of_the_surge_to_ten_good_seconds(slo: SloFile, model: StepModel) -> None:
    outcomes = [outcome(float(n), ttft_s=5.0 if 20 <= n < 34 else 0.1) for n in range(60)]
    assert figures(outcomes, slo, model, surge_s=(20.0, 30.0))["recovery_s"] == 3.0
    never = [outcome(float(n), ttft_s=5.0 if n >= 20 else 0.1) for n in range(60)]
    assert figures(never, slo, model, surge_s=(20.0, 30.0))["recovery_s"] == "never"
    assert math.isnan(recovery_s(outcomes, set(), None))


def sample(time_s: float, *, bias: float = math.nan, rung: float = math.nan) -> Sample:
    return Sample(time_s, 0, 0, 0.0, 0.0, rung, bias, False)


def test_settling_is_until_the_bias_is_within_a_twentieth() -> None:
    samples = [sample(float(n), bias=1.0 if n < 12 else min(1.25, 1.0 + 0.05 * (n - 11))) for n in range(30)]
    assert settle_s(samples, [(12.0, 1.25)]) == 3.0
    assert settle_s(samples, [(12.0, 2.0)]) == math.inf
    assert math.isnan(settle_s([sample(1.0)], [(0.0, 2.0)]))
    assert math.isnan(settle_s(samples, []))


def test_rung_changes_are_counted_by_the_minute() -> None:
    samples = [sample(10.0 * n, rung=float(n in (3, 4))) for n in range(13)]
    assert rung_changes_per_min(samples) == 1.0
    assert math.isnan(rung_changes_per_min([sample(0.0), sample(1.0)]))


@pytest.mark.parametrize(
    ("values", "part", "expected"), [([3.0], 0.5, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), ([1.0, 2.0], 0.99, 2.0)]
)
def test_percentiles_are_of_the_nearest_rank(values: list[float], part: float, expected: float) -> None:
    assert percentile(values, part) == expected
    assert math.isnan(percentile([], part))


def test_an_interval_holds_the_mean_and_is_a_point_for_one_seed() -> None:
    middle, low, high = interval([1.0, 2.0, 3.0, 4.0, math.nan])
    assert (low, middle, high) == (pytest.approx(low), 2.5, pytest.approx(high))
    assert 1.0 <= low < 2.5 < high <= 4.0
    assert interval([2.0]) == (2.0, 2.0, 2.0)
    assert all(map(math.isnan, interval([])))
    assert mean([1.0, math.nan, 3.0]) == 2.0


def test_jain_is_one_for_equals_and_one_nth_for_one_taker() -> None:
    assert jain([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert jain([5.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([0.0, 0.0]) == 1.0
    assert math.isnan(jain([1.0]))


def test_max_min_shares_fill_the_small_first() -> None:
    assert max_min_shares({"a": 1.0, "b": 10.0, "c": 4.0}, 9.0) == {"a": 1.0, "c": 4.0, "b": 4.0}
    assert max_min_shares({"a": 1.0, "b": 2.0}, 9.0) == {"a": 1.0, "b": 2.0}
