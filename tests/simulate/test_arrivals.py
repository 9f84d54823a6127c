"""Arrivals are paired by seed and come at the rate and with the variation that was asked for."""

from __future__ import annotations

import itertools
import math

import pytest
from tests.simulate.conftest import rows_at

from seekserve.errors import InputError
from seekserve.simulate.arrivals import PROCESSES, Load, make_arrivals, parse_shares, surge_window_s
from seekserve.simulate.records import Arrival
from seekserve.simulate.slo import SloFile
from seekserve.simulate.traces import TraceRow

ROWS = rows_at(10.0, 4000)


def gaps_s(arrivals: list[Arrival]) -> list[float]:
    return [b.time_s - a.time_s for a, b in itertools.pairwise(arrivals)]


def cv(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) / mean


@pytest.mark.parametrize("process", PROCESSES)
def test_the_same_seed_gives_the_same_arrivals_whatever_the_process(process: str, slo: SloFile) -> None:
    load = Load(process=process, speed=2.0)
    assert make_arrivals(ROWS, slo, load, seed=1) == make_arrivals(ROWS, slo, load, seed=1)
    assert make_arrivals(ROWS, slo, load, seed=1) != make_arrivals(ROWS, slo, load, seed=2)


def test_classes_do_not_depend_on_speed_or_process(slo: SloFile) -> None:
    one = make_arrivals(ROWS, slo, Load(), seed=1)
    other = make_arrivals(ROWS, slo, Load(speed=3.0, process="gamma"), seed=1)
    assert [a.request_class for a in one] == [a.request_class for a in other]
    assert 0.67 < sum(a.request_class == "interactive" for a in one) / len(one) < 0.73


@pytest.mark.parametrize("process", ["trace", "poisson", "gamma", "onoff"])
def test_speed_is_the_mean_rate(process: str, slo: SloFile) -> None:
    arrivals = make_arrivals(ROWS, slo, Load(speed=2.0, process=process, gap_cv=2.0, period_s=20.0), seed=4)
    assert len(arrivals) / arrivals[-1].time_s == pytest.approx(20.0, rel=0.12)


@pytest.mark.parametrize(("process", "expected"), [("trace", 0.0), ("poisson", 1.0), ("gamma", 3.0)])
def test_gaps_vary_as_their_process_says(process: str, expected: float, slo: SloFile) -> None:
    arrivals = make_arrivals(ROWS, slo, Load(process=process, gap_cv=3.0), seed=5)
    assert cv(gaps_s(arrivals)) == pytest.approx(expected, abs=0.01 + 0.15 * expected)


def test_on_has_the_stated_times_the_rate_of_off(slo: SloFile) -> None:
    arrivals = make_arrivals(ROWS, slo, Load(process="onoff", factor=4.0, period_s=20.0), seed=6)
    on = sum(int(a.time_s / 10.0) % 2 == 0 for a in arrivals)
    assert on / (len(arrivals) - on) == pytest.approx(4.0, rel=0.1)


def test_a_surge_squeezes_the_recorded_gaps_for_its_time_and_no_longer(slo: SloFile) -> None:
    load = Load(process="surge", speed=2.0, factor=3.0, period_s=30.0)
    arrivals = make_arrivals(ROWS, slo, load, seed=0)
    window = surge_window_s(ROWS, load)
    assert window is not None
    start_s, end_s = window
    assert end_s - start_s == 30.0
    in_surge = sum(start_s <= a.time_s < end_s for a in arrivals)
    before = sum(start_s - 30.0 <= a.time_s < start_s for a in arrivals)
    after = sum(end_s <= a.time_s < end_s + 30.0 for a in arrivals)
    assert before == pytest.approx(600, abs=2)
    assert after == pytest.approx(600, abs=2)
    assert in_surge == pytest.approx(1800, abs=2)
    assert surge_window_s(ROWS, Load()) is None


def test_long_prompts_come_by_lot_and_reuse_nothing(slo: SloFile) -> None:
    rows = [TraceRow(n, 100, 5, 50) for n in range(2000)]
    arrivals = make_arrivals(rows, slo, Load(long_share=0.1, long_tokens=3000), seed=1)
    long = [a for a in arrivals if a.prompt_tokens == 3000]
    assert 150 < len(long) < 250
    assert {a.cached_tokens for a in long} == {0}
    assert {a.cached_tokens for a in arrivals if a.prompt_tokens == 100} == {50}
    assert {a.cached_tokens for a in make_arrivals(rows, slo, Load(reuses_prefixes=False), seed=1)} == {0}


def test_answers_are_no_longer_than_what_may_be_asked_for(slo: SloFile) -> None:
    assert make_arrivals([TraceRow(0.0, 5, 999)], slo, Load(), seed=0)[0].output_tokens == slo.max_tokens


def test_tenants_share_the_requests(slo: SloFile) -> None:
    arrivals = make_arrivals(ROWS, slo, Load(tenants=parse_shares("big=10,small=1")), seed=1)
    big = sum(a.tenant == "big" for a in arrivals)
    assert big / (len(arrivals) - big) == pytest.approx(10.0, rel=0.15)


@pytest.mark.parametrize("text", ["", "=1", "a=0", "a=x", "a=-1", "a=1,,b=2", "a=nan"])
def test_shares_are_names_with_numbers_above_zero(text: str) -> None:
    with pytest.raises(InputError, match="--tenants"):
        parse_shares(text)


def test_an_unknown_process_is_named(slo: SloFile) -> None:
    with pytest.raises(InputError, match="'weekly' is not known"):
        make_arrivals(ROWS, slo, Load(process="weekly"), seed=0)
