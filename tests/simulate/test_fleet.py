"""Routers: who gets what, and that asking them costs the same however many replicas there are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.simulate.conftest import rows_at

from seekserve.errors import InputError
from seekserve.simulate.fleet import LeastLoaded, PrefixAware, RoundRobin, make_router
from seekserve.simulate.price import Prices
from seekserve.simulate.records import Arrival
from seekserve.simulate.sweep import Case, simulate
from seekserve.simulate.traces import TraceRow
from seekserve_backend.contract.step_model import StepModel


@pytest.fixture
def prices(model: StepModel) -> Prices:
    return Prices(model, chunk_tokens=256)


def arrival(prompt: int, blocks: tuple[int, ...] = ()) -> Arrival:
    return Arrival(0.0, prompt, 10, "interactive", 50, blocks=blocks)


def test_round_robin_goes_round(prices: Prices) -> None:
    router = RoundRobin(3, prices)
    assert [router.choose(str(n), arrival(9)) for n in range(5)] == [0, 1, 2, 0, 1]


def test_the_least_loaded_by_price_not_by_count_is_chosen(prices: Prices) -> None:
    router = LeastLoaded(2, prices)
    assert router.choose("long", arrival(5000)) == 0
    assert [router.choose(str(n), arrival(50)) for n in range(4)] == [1, 1, 1, 1]
    router.gone("long")
    assert router.choose("next", arrival(50)) == 0


def test_loads_are_those_of_what_is_there_after_any_sequence(prices: Prices) -> None:
    router, lot = LeastLoaded(5, prices), random.Random(2)
    there: dict[str, tuple[int, Arrival]] = {}
    for n in range(2000):
        if there and lot.random() < 0.5:
            id = lot.choice(sorted(there))
            router.gone(id)
            del there[id]
        else:
            asked = arrival(lot.randint(1, 3000))
            there[str(n)] = (router.choose(str(n), asked), asked)
        least = min(router.load_ms)
        assert router.load_ms[router.least_loaded()] == least
    counted = [0.0] * 5
    for chosen, asked in there.values():
        counted[chosen] += prices.prompt_ms(asked.prompt_tokens) + prices.output_ms(asked.prompt_tokens, 50)
    assert router.load_ms == pytest.approx(counted)


def test_a_prompt_goes_where_its_beginning_is_unless_that_replica_is_too_busy(prices: Prices) -> None:
    router = PrefixAware(3, prices)
    home = router.choose("a", arrival(2100, (1, 2, 3, 4)))
    assert router.choose("b", arrival(2100, (1, 2, 3, 5))) == home
    assert len({router.choose(f"more{n}", arrival(2100, (1, 2, 3, 4))) for n in range(60)}) > 1
    least = router.least_loaded()
    assert router.choose("new", arrival(100, (9,))) == least


def test_an_unknown_router_is_named(prices: Prices) -> None:
    with pytest.raises(InputError, match="least-loaded"):
        make_router("lottery", 2, prices)


@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "prefix-aware"])
def test_a_fleet_carries_what_its_replicas_would_carry_alone(router: str, make_case: Callable[..., Case]) -> None:
    rows = [TraceRow(n / 20.0, 200 + 40 * (n % 7), 20, blocks=(n % 50,)) for n in range(400)]
    figures = simulate(make_case("paced", rows=rows, replicas=4, router=router)).figures
    assert figures.attainment > 0.95
    assert 0.0 < figures.busy_ratio <= 1.0


def test_prefix_aware_routing_reads_less(make_case: Callable[..., Case]) -> None:
    lot = random.Random(1)
    users = [2 * lot.randrange(24) for _ in range(800)]
    rows = [TraceRow(n / 10.0, 1100, 10, blocks=(user, user + 1)) for n, user in enumerate(users)]
    hits = {
        router: simulate(make_case("paced", rows=rows, replicas=4, router=router)).figures.hit_ratio
        for router in ("round-robin", "prefix-aware")
    }
    assert hits["prefix-aware"] > hits["round-robin"] + 0.05


def test_prefix_aware_routing_needs_block_hashes(make_case: Callable[..., Case]) -> None:
    with pytest.raises(InputError, match="no block hashes"):
        simulate(make_case("paced", replicas=2, router="prefix-aware"))


def test_steps_grow_with_replicas_no_faster_than_load(make_case: Callable[..., Case]) -> None:
    """The cost of a run is that of its steps and requests; each replica's steps are as many as alone."""
    alone = simulate(make_case("paced", rows=rows_at(10.0, 100)))
    many = simulate(replace(make_case("paced", rows=rows_at(80.0, 800)), replicas=8, router="least-loaded"))
    assert many.steps < 1.2 * 8 * alone.steps
