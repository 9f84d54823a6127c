"""Whole runs: every arrival has an end, the clock is the engine's, clients come back as they say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.simulate.conftest import rows_at

from seekserve.simulate.arrivals import Load
from seekserve.simulate.measure import is_good
from seekserve.simulate.records import Clients, Run
from seekserve.simulate.sweep import Case, Engine, Result, run_all, simulate
from seekserve.simulate.traces import TraceRow

POLICIES = ("paced", "oracle", "fcfs", "seed", "seed:open", "static:8:0.5", "static:8")


def run_of(case: Case) -> Run:
    result = simulate(replace(case, sample_every_s=1.0))
    assert result.run is not None
    return result.run


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("speed", [0.5, 8.0])
def test_every_arrival_ends_once_and_in_order(policy: str, speed: float, make_case: Callable[..., Case]) -> None:
    done = run_of(make_case(policy, speed=speed))
    for outcome in done.outcomes:
        assert outcome.state in ("finished", "refused", "expired")
        if outcome.state == "finished":
            assert outcome.released_s is not None
            assert outcome.first_s is not None
            assert outcome.end_s is not None
            assert outcome.arrival.time_s <= outcome.released_s < outcome.first_s <= outcome.end_s
            assert outcome.tokens == outcome.arrival.output_tokens


def test_alone_on_the_engine_a_request_takes_what_the_model_says(make_case: Callable[..., Case]) -> None:
    done = run_of(make_case("fcfs", rows=[TraceRow(0.0, 200, 3)], load=Load(speed=1.0)))
    first_ms = 9.9 + 0.1 * 200 + 1e-6 * 200**2
    assert done.outcomes[0].first_s == pytest.approx(first_ms / 1000.0)
    assert done.outcomes[0].end_s == pytest.approx((first_ms + 2 * 10.0 + 0.001 * (201 + 202)) / 1000.0)
    assert done.busy_s == pytest.approx(done.outcomes[0].end_s)


def test_a_request_that_comes_during_a_step_starts_with_the_next(make_case: Callable[..., Case]) -> None:
    rows = [TraceRow(0.0, 200, 2), TraceRow(0.01, 100, 2)]
    first, second = run_of(make_case("fcfs", rows=rows)).outcomes
    assert second.released_s == first.first_s


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_case_gives_the_same_bytes(policy: str, make_case: Callable[..., Case], engine: Engine) -> None:
    noisy = replace(engine, noise=0.1, draft_tokens=2, stall_at_s=5.0, stall_s=2.0, fail_at_s=(9.0,))
    case = make_case(policy, speed=4.0, engine=noisy, clients=Clients(retries=2, patience_s=3.0), seed=3)
    one, two = (json.dumps(simulate(case).to_json()) for _ in range(2))
    assert one == two


def test_processes_give_what_one_process_gives(make_case: Callable[..., Case]) -> None:
    todo = [make_case(policy, speed=3.0, rows=rows_at(5.0, 60)) for policy in ("paced", "fcfs", "static:8:0.5")]
    assert [r.to_json() for r in run_all(todo, jobs=2)] == [r.to_json() for r in run_all(todo)]


def test_the_oracle_asks_for_what_it_will_get_and_the_others_do_not(make_case: Callable[..., Case]) -> None:
    asked = {
        policy: [o.arrival.max_tokens for o in run_of(make_case(policy)).outcomes] for policy in ("paced", "oracle")
    }
    assert set(asked["paced"]) == {50}
    assert asked["oracle"] == [o.arrival.output_tokens for o in run_of(make_case("oracle")).outcomes]


def test_refused_clients_come_back_when_they_were_told_and_no_more_often_than_they_may(
    make_case: Callable[..., Case],
) -> None:
    overload: dict[str, object] = {"speed": 10.0, "rows": rows_at(5.0, 600)}
    once = simulate(make_case("paced", **overload))
    thrice = simulate(make_case("paced", clients=Clients(retries=2), **overload))
    assert once.figures.tries == 1.0
    assert 1.0 < thrice.figures.tries <= 3.0
    for outcome in run_of(make_case("paced", clients=Clients(retries=2), **overload)).outcomes:
        assert outcome.tries <= 3
        if outcome.tries > 1:
            assert outcome.asked_s >= outcome.arrival.time_s + 0.5 * (outcome.tries - 1)


def test_clients_who_ignore_the_hint_come_back_after_a_second(make_case: Callable[..., Case]) -> None:
    clients = Clients(retries=1, honours_hint=False)
    outcomes = run_of(make_case("paced", speed=10.0, rows=rows_at(5.0, 600), clients=clients)).outcomes
    back = [o for o in outcomes if o.tries == 2 and o.arrival.request_class == "interactive"]
    assert back
    for outcome in back:
        waited_s = outcome.asked_s - outcome.arrival.time_s
        assert 0.999 < waited_s < 8.0


def test_a_client_without_patience_hangs_up_and_its_work_is_wasted(make_case: Callable[..., Case]) -> None:
    case = make_case("fcfs", speed=10.0, rows=rows_at(5.0, 600), clients=Clients(patience_s=1.0))
    states = [o.state for o in run_of(case).outcomes]
    assert states.count("left") > 100
    assert {*states} == {"left", "finished"}
    assert all(o.first_s - o.asked_s <= 1.5 for o in run_of(case).outcomes if o.first_s is not None)


def test_a_failing_engine_loses_what_it_holds_and_clients_come_back(
    make_case: Callable[..., Case], engine: Engine
) -> None:
    broken = replace(engine, fail_at_s=(5.0,))
    lost = run_of(make_case("paced", engine=broken)).outcomes
    failed = [o for o in lost if o.state == "failed"]
    assert failed
    assert all(o.arrival.time_s < 5.2 for o in failed)
    again = run_of(make_case("paced", engine=broken, clients=Clients(retries=3))).outcomes
    assert not [o for o in again if o.state == "failed"]


def test_three_failures_open_the_breaker_and_it_closes_again(make_case: Callable[..., Case], engine: Engine) -> None:
    broken = replace(engine, fail_at_s=(5.0, 5.3, 5.6, 5.9, 6.2))
    done = run_of(make_case("paced", engine=broken, rows=rows_at(5.0, 400)))
    assert done.breaker_openings >= 1
    assert any(sample.is_broken for sample in done.samples)
    assert not done.samples[-1].is_broken
    assert done.outcomes[-1].state == "finished"


def test_samples_come_once_a_second_and_add_up(make_case: Callable[..., Case]) -> None:
    done = run_of(make_case("paced", speed=6.0))
    assert [sample.time_s for sample in done.samples] == [float(n) for n in range(len(done.samples))]
    assert max(sample.running for sample in done.samples) > 4
    assert all(0.0 <= sample.kv_share <= 1.0 for sample in done.samples)
    assert all(sample.bias == pytest.approx(1.0, abs=0.2) for sample in done.samples)


def test_a_slower_engine_shows_in_the_bias_and_in_the_time_to_settle(
    make_case: Callable[..., Case], engine: Engine
) -> None:
    slower = replace(engine, slowdown=1.25, slow_from_part=0.5)
    figures = simulate(make_case("paced", engine=slower, rows=rows_at(8.0, 900), sample_every_s=1.0)).figures
    assert 1.0 < figures.settle_s < 20.0


def test_good_means_all_targets_of_the_last_try(make_case: Callable[..., Case]) -> None:
    case = make_case("fcfs", rows=[TraceRow(0.0, 200, 3)])
    outcome = run_of(case).outcomes[0]
    assert is_good(outcome, case.slo)
    outcome.first_s = 0.8
    outcome.end_s = 0.9
    interactive = dataclasses.replace(outcome, arrival=replace(outcome.arrival, request_class="interactive"))
    assert not is_good(interactive, case.slo)
    assert is_good(dataclasses.replace(interactive, asked_s=0.2), case.slo)
    assert not is_good(dataclasses.replace(interactive, asked_s=0.2, end_s=1.5), case.slo)
    assert not is_good(dataclasses.replace(interactive, asked_s=0.2, state="expired"), case.slo)


def test_results_say_what_they_are_of(make_case: Callable[..., Case]) -> None:
    result: Result = simulate(make_case("static:8:0.5", speed=2.0, seed=4))
    data = result.to_json()
    assert [data[name] for name in ("policy", "trace", "speed", "seed", "arrivals", "replicas")] == [
        "static:8:0.5",
        "made",
        2.0,
        4,
        "trace",
        1,
    ]
    assert result.run is None
