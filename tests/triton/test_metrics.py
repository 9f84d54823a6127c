"""The publisher against a stand-in that knows what Triton refuses: there, a second refused call ends the server."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve_backend.contract.metric_names import BOOKS, FAMILIES, FAMILY, GATE_GAUGES, PREFIX, Kind
from seekserve_backend.core.types import Snapshot
from seekserve_backend.engines.port import EngineStats
from seekserve_backend.measures import Observation, Totals
from seekserve_backend.service import ServiceStats
from seekserve_backend.triton.metric_samples import books
from seekserve_backend.triton.metrics import Metrics


class Refused(RuntimeError):
    pass


class FakeMetric:
    def __init__(self, family: FakeFamily, labels: dict[str, str]) -> None:
        self.family = family
        self.labels = labels
        self.value = 0.0
        self.seen: list[float] = []

    def _call(self, what: str, value: float, *, allowed: bool) -> None:
        self.family.world.calls.append((what, self.family.name))
        if not allowed or self.family.world.is_broken:
            raise Refused(f"{what}({value}) of {self.family.name}")

    def increment(self, value: float) -> None:
        self._call("increment", value, allowed=self.family.kind != "HISTOGRAM" and value > 0)
        self.value += value

    def set(self, value: float) -> None:
        self._call("set", value, allowed=self.family.kind == "GAUGE" and math.isfinite(value))
        self.value = value

    def observe(self, value: float) -> None:
        self._call("observe", value, allowed=self.family.kind == "HISTOGRAM")
        self.seen.append(value)


class FakeFamily:
    COUNTER, GAUGE, HISTOGRAM = "COUNTER", "GAUGE", "HISTOGRAM"
    world: World

    def __init__(self, *, name: str, description: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.metrics: list[FakeMetric] = []
        self.world.families[name] = self

    def Metric(self, *, labels: dict[str, str], buckets: list[float] | None = None) -> FakeMetric:
        assert (buckets is not None) == (self.kind == "HISTOGRAM")
        self.metrics.append(FakeMetric(self, labels))
        return self.metrics[-1]


class World:
    """What would stand on the endpoint."""

    def __init__(self) -> None:
        self.families: dict[str, FakeFamily] = {}
        self.calls: list[tuple[str, str]] = []
        self.is_broken = False
        self.MetricFamily: Any = type("Family", (FakeFamily,), {"world": self})

    def value(self, name: str, **labels: str) -> float:
        (found,) = [m for m in self.families[PREFIX + name].metrics if labels.items() <= m.labels.items()]
        return found.value


def snapshot(**changes: Any) -> Snapshot:
    base = Snapshot(
        intake=1,
        queued_by_class={"chat": 2},
        queued_by_bucket={"<=512": 2},
        running=3,
        reserved_blocks=4,
        offered=10,
        terminals={"finished": 4},
        refused_by_code={},
        policy_name="p",
        policy_generation=0,
        refused_by_why={("chat", "overloaded", "queue_full"): 0},
        ended_by_class={("chat", "finished"): 4},
        admitted_by_class={"chat": 9},
        gauges={"bias": 1.5, "credit_ms": 250.0, "breaker": 0.0, "breaker_openings": 0.0},
    )
    return replace(base, **changes)


def stats(**changes: Any) -> ServiceStats:
    base = ServiceStats(
        snapshot=snapshot(),
        engine=engine(),
        engine_kind="synthetic",
        totals=Totals(),
        looks_up_prefixes=False,
        outbox_depth=0,
        send_age_s=0.0,
        stream_silence_s=None,
        engine_restarts=0,
        engine_loop_age_s=0.1,
        is_broken=False,
        is_rebuilding=False,
    )
    return replace(base, **changes)


def engine(tokens_out: int = 7) -> EngineStats:
    return EngineStats(
        running=3,
        kv_total_blocks=100,
        kv_free_blocks=60,
        steps=5,
        last_step_ms=2.0,
        last_batch_size=3,
        tokens_out=tokens_out,
        prompt_tokens_in=9,
    )


def made(world: World, observations: Callable[[int], list[Observation]] = lambda _most: [], **options: Any) -> Metrics:
    return Metrics(world, "m", instance="m_0", process="7", observations=observations, unix_time=lambda: 5e9, **options)


def test_units_are_converted_and_the_unknown_is_absent() -> None:
    world = World()
    made(world).flush(stats())
    assert world.value("credit_seconds") == 0.25
    assert world.value("step_bias_ratio", model="m", process="7") == 1.5
    assert world.value("kv_used_blocks") == 40
    assert world.value("requests_ended_total", **{"class": "chat", "terminal": "finished"}) == 4
    for name in ("stream_silence_seconds", "prefix_lookups_total", "kv_reused_blocks_total", "pressure_ratio"):
        assert PREFIX + name not in world.families


def test_the_books_are_written_between_two_counts_in_the_order_of_their_families() -> None:
    world = World()
    publisher = made(world)
    for running in (3, 5):
        world.calls.clear()
        publisher.flush(stats(snapshot=snapshot(running=running)))
        names = [name for _, name in world.calls]
        first, last = names.index(PREFIX + "flushes_begun"), names.index(PREFIX + "flushes_total")
        assert first == 0
        assert {*names[first : last + 1]} <= {family.name for family in BOOKS}
        assert not {*names[last + 1 :]} & {family.name for family in BOOKS}
    assert list(world.families)[: len(BOOKS)] == [family.name for family in BOOKS]
    assert world.value("flushes_total") == world.value("flushes_begun") == 2
    kinds = [family.kind for family in BOOKS]
    assert kinds == sorted(kinds), "Triton shows counters before gauges"


def test_the_samples_of_the_books_balance() -> None:
    found = {name: 0.0 for name, _, _ in books(stats())}
    for name, _, value in books(stats()):
        found[name] += value
    open_now = sum(found[f"{PREFIX}{name}_requests"] for name in ("intake", "queue", "running"))
    assert found[PREFIX + "requests_offered_total"] == open_now + found[PREFIX + "requests_ended_total"]


def test_only_what_changed_is_sent() -> None:
    world = World()
    publisher = made(world)
    publisher.flush(stats())
    world.calls.clear()
    publisher.flush(stats())
    assert {name.removeprefix(PREFIX) for _, name in world.calls} == {"flushes_begun", "flushes_total"}


@given(st.lists(st.integers(0, 100), min_size=1, max_size=10))
def test_a_counter_only_rises_also_when_its_source_begins_anew(values: list[int]) -> None:
    world = World()
    publisher = made(world)
    shown = [0.0]
    for value in values:
        publisher.flush(stats(engine=engine(tokens_out=value)))
        shown.append(world.value("output_tokens_total"))
    assert shown == sorted(shown)
    rises = sum(b - a if b >= a else b for a, b in zip([0, *values], values, strict=False))
    assert shown[-1] == rises


def test_the_first_error_is_the_last_call() -> None:
    world = World()
    publisher = made(world)
    publisher.flush(stats())
    world.is_broken = True
    world.calls.clear()
    publisher.flush(stats(engine=engine(tokens_out=99)))
    publisher.flush(stats(engine=engine(tokens_out=100)))
    assert len(world.calls) == 1


def test_a_number_that_is_no_number_is_not_sent() -> None:
    world = World()
    made(world).flush(stats(snapshot=snapshot(gauges={"bias": math.nan, "step_ms": math.inf})))
    assert PREFIX + "step_bias_ratio" not in world.families
    assert world.value("flushes_total") == 1


def test_a_gauge_that_is_no_longer_known_goes_away_and_may_come_back() -> None:
    world = World()
    publisher = made(world)
    publisher.flush(stats())
    old = world.families.pop(PREFIX + "step_bias_ratio")
    publisher.flush(stats(snapshot=snapshot(gauges={})))
    assert PREFIX + "step_bias_ratio" not in publisher._families
    publisher.flush(stats())
    assert world.families[PREFIX + "step_bias_ratio"] is not old
    assert world.value("step_bias_ratio") == 1.5


def test_the_queue_of_a_class_that_is_gone_is_empty() -> None:
    world = World()
    metrics = Metrics(world, "chat", process="7")
    metrics.flush(stats())
    assert world.value("queue_requests", **{"class": "chat"}) == 2
    metrics.flush(stats(snapshot=snapshot(queued_by_class={"other": 1})))
    assert world.value("queue_requests", **{"class": "chat"}) == 0
    assert world.value("queue_requests", **{"class": "other"}) == 1


def test_observations_go_out_for_a_limited_time_and_the_rest_waits() -> None:
    world, ticks = World(), iter(range(100))
    left = [(PREFIX + "queue_time_seconds", "chat", 0.5)] * 1000

    def take(most: int) -> list[Observation]:
        taken, left[:] = left[:most], left[most:]
        return taken

    publisher = made(world, take, clock=lambda: float(next(ticks)))
    publisher.flush(stats())
    (series,) = world.families[PREFIX + "queue_time_seconds"].metrics
    assert 0 < len(series.seen) < 1000
    while left:
        publisher.flush(stats())
    assert series.seen == [0.5] * 1000


def test_closing_lets_go_of_everything_and_later_flushes_do_nothing() -> None:
    world = World()
    publisher = made(world)
    publisher.flush(stats())
    publisher.close()
    world.calls.clear()
    publisher.flush(stats())
    assert (world.calls, publisher._families, publisher._series) == ([], {}, {})


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_follow_prometheus(family: Any) -> None:
    assert FAMILY[family.name] is family, "unique"
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert (list(family.buckets) == sorted({*family.buckets}) != []) == (family.kind is Kind.HISTOGRAM)
    for ending in ("_ms", "_milliseconds", "_count", "_sum", "_bucket", "_info_total"):
        assert not family.name.endswith(ending)
    if family.unit in ("seconds", "ratio", "blocks"):
        assert family.unit in family.name
    assert family.help
    assert not family.help.endswith(".")


def test_every_gauge_of_the_core_has_a_family() -> None:
    assert {PREFIX + name for name in GATE_GAUGES.values()} <= FAMILY.keys()
