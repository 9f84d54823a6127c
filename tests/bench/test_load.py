from __future__ import annotations

import pytest

from seekserve.bench.load import DEFAULT_SLO, Source, arrivals_at, fixed_source
from seekserve.errors import InputError
from seekserve.simulate.arrivals import Load
from seekserve.simulate.traces import TraceRow

SOURCE = fixed_source(prompt_tokens=100, output_tokens=10, requests=400)


@pytest.mark.parametrize("process", ["trace", "poisson", "gamma", "onoff"])
def test_requests_come_at_the_rate_asked_for_and_for_as_long(process: str) -> None:
    load = Load(speed=5.0 / SOURCE.rate_rps, process=process, gap_cv=1.0)
    made = arrivals_at(SOURCE, DEFAULT_SLO, load, seed=1, duration_s=60.0)
    assert made[0].time_s == 0.0
    assert made[-1].time_s <= 60.0
    assert 200 <= len(made) <= 400


def test_the_same_seed_gives_the_same_arrivals() -> None:
    load = Load(process="poisson")
    one, two, other = (arrivals_at(SOURCE, DEFAULT_SLO, load, seed=seed, duration_s=50.0) for seed in (4, 4, 5))
    assert one == two != other


def test_a_run_of_less_than_two_requests_is_refused() -> None:
    with pytest.raises(InputError, match="a run needs two"):
        arrivals_at(SOURCE, DEFAULT_SLO, Load(), seed=0, duration_s=0.5)


def test_the_rate_of_a_source_is_that_of_its_gaps() -> None:
    assert Source(name="s", rows=[TraceRow(0.25 * n, 1, 1) for n in range(9)]).rate_rps == 4.0
    assert Source(name="s", rows=[TraceRow(0.0, 1, 1)] * 3).rate_rps == 1.0
