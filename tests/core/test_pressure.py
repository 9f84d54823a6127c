"""The ladder, the ramp and the breaker, each against a clock of its own."""

from __future__ import annotations

import json

import pytest

from seekserve_backend.contract.policy import BreakerOptions, Policy
from seekserve_backend.contract.rungs import DEFAULT_RUNGS, Rung
from seekserve_backend.core.breaker import Breaker, BreakerState
from seekserve_backend.core.controls import unsupported
from seekserve_backend.core.pressure import Ladder
from seekserve_backend.core.ramp import Ramp


def test_the_ladder_rises_after_a_short_time_and_falls_after_a_long_one() -> None:
    ladder = Ladder(DEFAULT_RUNGS, up_s=5.0, down_s=30.0)
    levels = []
    for second in range(12):
        ladder.update(1.5, float(second))
        levels.append(ladder.level)
    assert levels == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2]
    for second in range(12, 60):
        ladder.update(0.0, float(second))
        levels.append(ladder.level)
    assert levels[12 + 29] == 2
    assert levels[12 + 30] == 1


def test_a_moment_below_the_mark_starts_the_wait_again() -> None:
    ladder = Ladder(DEFAULT_RUNGS, up_s=5.0, down_s=30.0)
    for second in range(40):
        ladder.update(0.0 if second % 4 == 3 else 2.0, float(second))
    assert ladder.level == 0


def test_pressure_between_two_rungs_stays_where_it_is() -> None:
    ladder = Ladder((Rung(at=0.8), Rung(at=1.2)), up_s=0.0, down_s=0.0)
    ladder.update(1.3, 0.0)
    ladder.update(1.3, 1.0)
    assert ladder.level == 2
    for second in range(2, 50):
        ladder.update(1.0, float(second))
    assert ladder.level == 1


def test_the_ramp_doubles_and_waits_while_steps_are_slow() -> None:
    ramp = Ramp(start_requests=4, doubling_s=10.0, most_requests=64)
    assert [ramp.limit(now, is_slow=False) for now in (0.0, 5.0, 10.0, 20.0)] == [4, 5, 8, 16]
    assert ramp.limit(100.0, is_slow=True) == 16
    assert ramp.limit(120.0, is_slow=False) == 64
    ramp.restart()
    assert ramp.limit(121.0, is_slow=False) == 4


def test_the_breaker_opens_on_faults_in_a_row_and_closes_after_good_probes() -> None:
    breaker = Breaker(BreakerOptions(faults_in_a_row=3, pause_s=10.0, probes=2))
    assert [breaker.failed(1.0) for _ in range(3)] == [False, False, True]
    assert not breaker.admits(5.0)
    assert 5000.0 <= breaker.wait_ms(5.0) <= 6000.0
    assert [breaker.admits(11.0) for _ in range(3)] == [True, True, False]
    assert breaker.state is BreakerState.HALF_OPEN
    assert [breaker.ended_well(1, 12.0) for _ in range(2)] == [False, True]
    assert breaker.state is BreakerState.CLOSED


def test_a_failed_probe_opens_it_again_for_twice_as_long() -> None:
    breaker = Breaker(BreakerOptions(faults_in_a_row=1, pause_s=10.0, most_pause_s=15.0))
    breaker.failed(0.0)
    assert breaker.admits(10.0)
    assert breaker.failed(10.0)
    assert not breaker.admits(24.0)
    assert breaker.admits(25.0)


def test_probes_that_never_end_do_not_keep_it_half_open_for_ever() -> None:
    breaker = Breaker(BreakerOptions(faults_in_a_row=1, pause_s=10.0, probes=1))
    breaker.failed(0.0)
    assert breaker.admits(10.0)
    assert not breaker.admits(15.0)
    assert breaker.admits(21.0)


def test_a_small_share_of_faults_does_not_open_it_and_a_large_one_does() -> None:
    breaker = Breaker(BreakerOptions(faults_in_a_row=99))

    def end(now: float, *, is_fault: bool) -> bool:
        return breaker.failed(now) if is_fault else breaker.ended_well(1, now)

    for n in range(200):
        assert not end(n / 100.0, is_fault=n % 40 == 39)
    opened = [end(3.0 + n / 100.0, is_fault=n % 5 == 0) for n in range(200)]
    assert any(opened)


def test_a_policy_that_asks_more_of_the_engine_than_it_can_is_told_so() -> None:
    policy = Policy.from_data(
        {
            "kind": "paced",
            "rungs": [
                {"at": 1.0, "max_beam_width": 2},
                {"at": 1.2, "no_speculation": True},
                {"at": 1.5, "route_to": "fp4"},
            ],
        },
        "p",
    )
    assert len(unsupported(policy, (), ())) == 3
    assert unsupported(policy, ("beam_width", "speculation"), ("fp4",)) == []
    (said,) = unsupported(policy, ("beam_width", "speculation"), ("int8", "fp8"))
    assert said.startswith("rung 3 (at 1.5) routes to 'fp4'; models of this server")
    assert said.endswith("fp8, int8 (did you mean fp8?)")


@pytest.mark.parametrize(
    ("rung", "problem"),
    [
        ({"route_to": "b", "route_classes": ["interactiv"]}, "did you mean interactive?"),
        ({"route_classes": ["interactive"]}, "route_to does not say where to"),
        ({"route_to": "b", "route_classes": "interactive"}, "expected a list of classes"),
        ({"route_to": ""}, "expected the name of a model"),
    ],
)
def test_a_bad_route_of_a_rung_is_named(rung: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match="rungs") as caught:
        Policy.from_data({"kind": "paced", "rungs": [{"at": 1.0, **rung}]}, "p")
    assert problem in str(caught.value)


def test_a_rung_with_a_route_survives_writing_and_reading() -> None:
    data = {"kind": "paced", "rungs": [{"at": 0.0, "route_to": "b", "route_classes": ["interactive"]}]}
    policy = Policy.from_data(data, "p")
    assert (policy.rungs[0].routes("interactive"), policy.rungs[0].routes("offline")) == (True, False)
    assert Policy.from_data(json.loads(policy.to_json()), "again") == policy


@pytest.mark.parametrize("rungs", [[{"at": 1.0}, {"at": 1.0}], [{"at": 1.0, "stop": True}], "all"])
def test_bad_rungs_are_refused(rungs: object) -> None:
    with pytest.raises(ValueError, match="rungs"):
        Policy.from_data({"kind": "paced", "rungs": rungs}, "p")
