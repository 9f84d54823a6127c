from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve.server.metrics import Sample, model_numbers, parse_metrics

TEXT = """\
# HELP seekserve_running_requests now
# TYPE seekserve_running_requests gauge
seekserve_running_requests{model="m"} 3
seekserve_queue_requests{class="batch",model="m"} 2
seekserve_queue_requests{class="interactive",model="m"} 1
seekserve_rung{model="m",process="71"} 2
seekserve_rung{model="m",process="72"} 1
seekserve_output_tokens_total{model="m",process="71"} 10
seekserve_output_tokens_total{model="m",process="72"} 20 1700000000000
seekserve_queue_time_seconds_bucket{class="batch",model="m",le="1"} 4
seekserve_running_requests{model="n"} 0
seekserve_orphan 1
nv_inference_count{model="m",version="1"} 9
garbage line here
"""


def test_numbers_are_kept_by_model_and_label() -> None:
    numbers = model_numbers(parse_metrics(TEXT))
    assert set(numbers) == {"m", "n"}
    assert numbers["m"].by_label == {"queue_requests": {"batch": 2.0, "interactive": 1.0}}
    assert numbers["m"].plain == {"running_requests": 3.0, "rung": 2.0, "output_tokens_total": 30.0}


def test_absent_is_absent_and_zero_is_zero() -> None:
    numbers = model_numbers(parse_metrics(TEXT))["n"]
    assert numbers.to_json() == {"running_requests": 0.0}


@pytest.mark.parametrize(("text", "value"), [("a 1e3", 1000.0), ("a{} 2", 2.0), ("a +Inf", math.inf)])
def test_forms_of_a_value(text: str, value: float) -> None:
    assert parse_metrics(text) == [Sample(name="a", labels={}, value=value)]


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=20), max_size=4))
def test_label_values_survive_escaping(labels: dict[str, str]) -> None:
    def escape(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    line = "x{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels.items()) + "} 1"
    if line.splitlines() == [line]:
        assert parse_metrics(line) == [Sample(name="x", labels=labels, value=1.0)]


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    model_numbers(parse_metrics(text))
