from __future__ import annotations

from typing import Any

import pytest

from seekserve_backend.contract.fields import ContractError, Fields
from seekserve_backend.contract.step_model import StepModel

MODEL = StepModel(
    base_points=((1, 10.0), (11, 20.0), (111, 220.0)),
    kv_read_ms_per_token=0.01,
    attention_ms_per_token2=0.001,
    source="measured",
)


@pytest.mark.parametrize(
    ("tokens", "ms"), [(1, 10.0), (6, 15.0), (11, 20.0), (61, 120.0), (111, 220.0), (211, 420.0), (0, 9.0)]
)
def test_base_is_linear_between_points_and_goes_on_with_the_last_slope(tokens: int, ms: float) -> None:
    assert MODEL.base_ms(tokens) == pytest.approx(ms)


def test_base_never_becomes_negative() -> None:
    model = StepModel(
        base_points=((10, 1.0), (20, 100.0)), kv_read_ms_per_token=0, attention_ms_per_token2=0, source="x"
    )
    assert model.base_ms(0) == 0.0


def test_a_step_adds_reads_and_attention() -> None:
    ms = MODEL.step_ms(decode_tokens=1, kv_tokens=100, chunks=((20, 10),))
    assert ms == pytest.approx(20.0 + 1.0 + 0.001 * (2 * 20 * 10 + 100))


def test_a_prompt_costs_the_same_attention_in_any_chunks() -> None:
    def attention_ms(chunks: tuple[tuple[int, int], ...]) -> float:
        prefill = sum(c for _, c in chunks)
        return MODEL.step_ms(decode_tokens=0, kv_tokens=0, chunks=chunks) - MODEL.base_ms(prefill)

    assert attention_ms(((0, 30),)) == pytest.approx(attention_ms(((0, 10), (10, 15), (25, 5))))


@pytest.mark.parametrize("points", [(), ((1, 1.0),), ((2, 1.0), (1, 2.0)), ((1, 1.0), (1, 2.0))])
def test_points_must_be_two_or_more_and_increasing(points: Any) -> None:
    with pytest.raises(ValueError, match="strictly increasing"):
        StepModel(base_points=points, kv_read_ms_per_token=0, attention_ms_per_token2=0, source="x")


@pytest.mark.parametrize(
    "points",
    [
        None,
        3,
        [[1, 2]],
        [[1], [2]],
        [[1, "2"], [2, 3]],
        [[True, 1], [2, 3]],
        [[1.5, 1], [2.5, 3]],
        [[1, float("nan")], [2, 3]],
        [[1, 1], [float("inf"), 3]],
        [[1, -1.0], [2, 3]],
        [[2, 1], [1, 2]],
    ],
)
def test_unusable_points_are_a_named_problem_and_no_crash(points: Any) -> None:
    data = {**MODEL.to_json(), "base_points": points}
    fields = Fields(data, "bundle")
    assert StepModel.read(fields.nested("step_model", data)) is None
    with pytest.raises(ContractError, match=r"step_model\.base_points: "):
        Fields.done(fields)


def test_a_model_survives_writing_and_reading() -> None:
    fields = Fields(MODEL.to_json(), "bundle")
    assert StepModel.read(fields) == MODEL
