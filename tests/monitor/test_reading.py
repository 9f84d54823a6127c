"""What is read from a scrape, and what follows from several: absent stays absent, resets are understood."""

from __future__ import annotations

import itertools
import json
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.monitor.exposition import Exposition

from seekserve.errors import ProtocolError
from seekserve.monitor.reading import Histogram, Scrape, parse_text, scrape_of
from seekserve.monitor.window import Window, quantile, windows_of
from seekserve_backend.contract.metric_names import FAMILIES, PREFIX, Kind

VALUES = st.floats(0.0, 1e9)


def read(*expositions: Exposition, at_s: float = 0.0, server: str = "h:1") -> Scrape:
    text = "".join(each.text() for each in expositions)
    return scrape_of(parse_text(text), server=server, time_s=at_s)


def window(*looks: Exposition, every_s: float = 10.0) -> Window:
    (only,) = windows_of([read(look, at_s=n * every_s) for n, look in enumerate(looks)])
    return only


def test_every_family_of_the_backend_is_read() -> None:
    made = Exposition()
    for family in FAMILIES:
        name, labels = family.name.removeprefix(PREFIX), ["x"] * len(family.labels)
        if family.kind is Kind.HISTOGRAM:
            made.observe(name, [family.buckets[0]], *labels)
        else:
            made.set(name, 3.0, *labels)
    numbers = read(made).models["chat"]
    assert {*numbers.values, *numbers.histograms} == {family.name.removeprefix(PREFIX) for family in FAMILIES}


@settings(deadline=None)
@given(VALUES, VALUES)
def test_of_two_processes_counts_are_added_and_of_states_the_worst_is_kept(a: float, b: float) -> None:
    one, two = Exposition(process="1"), Exposition(process="2")
    for made, value in ((one, a), (two, b)):
        made.set("running_requests", value).set("pressure_ratio", value).set("output_tokens_total", value)
        made.set("credit_seconds", value).observe("queue_time_seconds", [0.1], "i")
    (found,) = windows_of([read(one, two)])
    assert found.now("running_requests") == pytest.approx(a + b)
    assert found.now("output_tokens_total") == pytest.approx(a + b)
    assert (found.now("pressure_ratio"), found.now("credit_seconds")) == (max(a, b), min(a, b))
    before = found.before("queue_time_seconds")
    assert before is not None
    assert before.count == 2


def test_the_state_of_a_process_that_is_gone_is_over_but_what_it_counted_counts() -> None:
    old = Exposition(process="1").set("flush_timestamp_seconds", 100.0).set("rung", 3).set("output_tokens_total", 5)
    new = Exposition(process="2").set("flush_timestamp_seconds", 160.0).set("rung", 0).set("output_tokens_total", 2)
    (found,) = windows_of([read(old, new)])
    assert (found.now("rung"), found.now("output_tokens_total")) == (0.0, 7.0)
    assert found.now("flush_timestamp_seconds") == 160.0


def test_what_is_absent_is_absent() -> None:
    found = window(Exposition().set("running_requests", 1), Exposition().set("running_requests", 1))
    for answer in (
        found.now("kv_blocks"),
        found.rate("output_tokens_total"),
        found.quantile("queue_time_seconds", 0.9),
    ):
        assert answer is None
    assert window(Exposition().set("output_tokens_total", 9)).rate("output_tokens_total") is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=8))
def test_a_counter_that_begins_anew_loses_nothing(values: list[int]) -> None:
    grown = window(*(Exposition().set("output_tokens_total", float(value)) for value in values))
    expected = sum(b - a if b >= a else b for a, b in itertools.pairwise(values))
    assert grown.increase("output_tokens_total") == expected
    assert grown.rate("output_tokens_total") == pytest.approx(expected / (10.0 * (len(values) - 1)))


@settings(deadline=None)
@given(st.lists(st.floats(0.0, 500.0), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(values: list[float], part: float) -> None:
    made = Exposition().observe("queue_time_seconds", values, "i")
    found = read(made).models["chat"].histograms["queue_time_seconds"]["i",]
    true = sorted(values)[max(0, math.ceil(part * len(values)) - 1)]
    high = next(bound for bound in found.bounds if true <= bound)
    low = max((bound for bound in found.bounds if bound < true), default=0.0)
    answer = quantile(found, part)
    assert answer is not None
    assert low <= answer <= min(high, found.bounds[-2]) + 1e-9


def test_only_what_came_within_the_window_is_looked_at() -> None:
    calm, busy = Exposition(), Exposition()
    calm.observe("queue_time_seconds", [0.001] * 50, "i").set("requests_ended_total", 5, "i", "finished")
    busy.observe("queue_time_seconds", [0.001] * 50 + [5.0] * 10, "i").set("requests_ended_total", 9, "i", "finished")
    found = window(calm, busy)
    assert (found.quantile("queue_time_seconds", 0.5) or 0.0) > 2.5
    assert found.quantile("queue_time_seconds", 0.5, **{"class": "j"}) is None
    assert found.rates("requests_ended_total", "terminal") == {"finished": 0.4}


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(0, 5))
def test_a_scrape_survives_json(models: int, observations: int) -> None:
    made = [
        Exposition(model=f"m{n}").set("rung", n).observe("queue_time_seconds", [0.1] * observations, "i")
        for n in range(models)
    ]
    scrape = scrape_of(
        parse_text("".join(each.text() for each in made) + 'DCGM_FI_DEV_FB_USED{gpu="0"} 5\n'), server="h", time_s=1.5
    )
    again = Scrape.from_json(json.loads(json.dumps(scrape.to_json())))
    assert again == scrape
    assert again.gpus == {"0": {"memory_used_bytes": 5 * 2.0**20}}


@pytest.mark.parametrize("text", ["[]", "<html>"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape("no Prometheus metrics")):
        parse_text(text)
    assert parse_text("") == []


def test_histograms_of_two_versions_are_not_mixed() -> None:
    a, b = Histogram((1.0, math.inf), (1.0, 2.0), 3.0), Histogram((2.0, math.inf), (5.0, 9.0), 3.0)
    assert a + b is b


@pytest.mark.parametrize("skew_s", [-3600.0, 0.0, 3600.0])
def test_a_process_that_still_writes_is_alive_whatever_its_clock_says(skew_s: float) -> None:
    lives = window(*(Exposition().set("flush_timestamp_seconds", skew_s + 10.0 * n) for n in range(4)))
    died = window(*(Exposition().set("flush_timestamp_seconds", skew_s + 10.0 * min(n, 1)) for n in range(4)))
    assert (lives.numbers_age_s(), died.numbers_age_s()) == (0.0, 20.0)
    assert window(Exposition().set("rung", 0)).numbers_age_s() is None


def test_of_a_short_look_the_written_time_is_believed() -> None:
    made = Exposition().set("flush_timestamp_seconds", 100.0)
    (short,) = windows_of([read(made, at_s=160.0), read(made, at_s=162.0)])
    assert short.numbers_age_s() == 62.0


def test_the_gpus_of_an_exporter_of_their_own_go_with_every_model() -> None:
    looks = []
    for n in range(2):
        looks += [read(Exposition(model=name).set("rung", 0), at_s=10.0 * n, server=f"{name}:1") for name in "ab"]
        text = f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-x"}} {60 + n}\nnv_gpu_utilization{{gpu_uuid="GPU-y"}} 0.5\n'
        looks.append(scrape_of(parse_text(text), server="dcgm:9400", time_s=10.0 * n))
    found = windows_of(looks)
    assert [each.server for each in found] == ["a:1", "b:1"]
    for each in found:
        assert each.gpu("temperature_c") == {"GPU-x": 61.0}
        assert each.gpu("busy_ratio") == {"GPU-y": 0.5}
