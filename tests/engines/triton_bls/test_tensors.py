"""What is sent to the stock model: typed, batched by one, and nothing that was not asked for."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve_backend.contract.bundle import Retention
from seekserve_backend.contract.stock_model import STOCK_INPUT_BY_NAME, STOCK_INPUTS, STOCK_OUTPUT_BY_NAME
from seekserve_backend.engines.port import EngineRequest, Sampling
from seekserve_backend.engines.triton_bls.port import StockCall
from seekserve_backend.engines.triton_bls.tensors import generation_call, stop_call

TYPES = {"INT32": int, "UINT64": int, "FP32": float, "BOOL": bool}


def call(sampling: Sampling | None = None, stop_ids: tuple[int, ...] = (1,), **fields: Any) -> StockCall:
    retention = fields.pop("retention", None)
    request = EngineRequest(id="a", prompt_ids=(7, 8, 9), max_tokens=20, sampling=sampling or Sampling(), **fields)
    return generation_call(
        request, stock_id="x-1", stop_ids=stop_ids, vocab_size=100, seed=77, timeout_us=5_000_000, retention=retention
    )


def sent(made: StockCall) -> dict[str, list[Any]]:
    return {tensor.name: list(tensor.values) for tensor in made.inputs}


PLAIN = {
    "input_ids": [7, 8, 9],
    "input_lengths": [3],
    "request_output_len": [20],
    "streaming": [True],
    "exclude_input_in_output": [True],
    "end_id": [1],
    "pad_id": [1],
}
GREEDY = {"runtime_top_k": [1]}
WARM = {"temperature": [0.5], "runtime_top_k": [0], "runtime_top_p": [1.0], "seed": [77]}


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), GREEDY),
        (Sampling(seed=3, top_k=9, top_p=0.3), GREEDY),
        (Sampling(temperature=0.5), WARM),
        (Sampling(temperature=0.5, top_k=9), {**WARM, "runtime_top_k": [9]}),
        (Sampling(temperature=0.5, top_k=100), WARM),
        (Sampling(temperature=0.5, top_p=0.9), {**WARM, "runtime_top_p": [0.9]}),
        (Sampling(temperature=0.5, seed=2**64 - 1), {**WARM, "seed": [2**64 - 1]}),
        (Sampling(repetition_penalty=1.1), {**GREEDY, "repetition_penalty": [1.1]}),
        (Sampling(presence_penalty=-1.0), {**GREEDY, "presence_penalty": [-1.0]}),
        (Sampling(frequency_penalty=0.5), {**GREEDY, "frequency_penalty": [0.5]}),
        (Sampling(min_tokens=4), {**GREEDY, "min_tokens": [4]}),
    ],
)
def test_sampling_is_sent_as_the_executor_means_it(sampling: Sampling, expected: dict[str, list[Any]]) -> None:
    assert sent(call(sampling)) == {**PLAIN, **expected}


def test_the_first_stop_id_is_the_end_id_and_the_others_are_words_of_one_token() -> None:
    words = next(tensor for tensor in call(stop_ids=(1, 50, 60)).inputs if tensor.name == "stop_words_list")
    assert (words.shape, words.values) == ((1, 2, 2), (50, 60, 1, 2))
    assert sent(call(stop_ids=(1, 50, 60)))["end_id"] == [1]


def test_beams_are_read_once_at_the_end() -> None:
    made = sent(call(beam_width=3))
    assert (made["beam_width"], made["streaming"]) == ([3], [False])


def test_log_probabilities_are_asked_for_and_requested_only_together() -> None:
    assert "output_log_probs" not in call().outputs
    made = call(wants_logprobs=True)
    assert sent(made)["return_log_probs"] == [True]
    assert "output_log_probs" in made.outputs


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        (Retention(prompt_priority=80), {"ends": [3], "priorities": [80]}),
        (Retention(prompt_tokens=2), {"ends": [2], "priorities": [35]}),
        (Retention(prompt_tokens=50, prompt_duration_s=1.5), {"ends": [3], "priorities": [35], "durations_ms": [1500]}),
    ],
)
def test_retention_covers_the_prompt_or_its_first_tokens(retention: Retention, expected: dict[str, Any]) -> None:
    made = sent(call(retention=retention))
    ranges = {name[22:]: made[name] for name in made if name.startswith("retention_token_range_")}
    assert ranges == {"starts": [0], **expected}
    assert made["retention_decode_priority"] == [35]


def test_a_stop_names_its_request_and_brings_the_required_tensors() -> None:
    stop = stop_call("x-1")
    required = {tensor.name for tensor in STOCK_INPUTS if not tensor.is_optional}
    assert stop.request_id == "x-1"
    assert sent(stop)["stop"] == [True]
    assert required <= {tensor.name for tensor in stop.inputs}


@given(
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.7]),
        top_k=st.integers(0, 200),
        top_p=st.floats(0.1, 1.0),
        seed=st.none() | st.integers(0, 2**64 - 1),
        repetition_penalty=st.floats(0.5, 2.0),
        min_tokens=st.integers(0, 5),
    ),
    stop_ids=st.lists(st.integers(0, 99), max_size=4, unique=True).map(tuple),
    beam_width=st.integers(1, 4),
    wants_logprobs=st.booleans(),
    retention=st.none() | st.builds(Retention, prompt_tokens=st.none() | st.integers(1, 9)),
)
def test_every_tensor_is_one_the_stock_model_declares(
    sampling: Sampling, stop_ids: tuple[int, ...], retention: Retention | None, **fields: Any
) -> None:
    made = call(sampling, stop_ids, retention=retention, **fields)
    assert len({tensor.name for tensor in made.inputs}) == len(made.inputs)
    assert all(STOCK_OUTPUT_BY_NAME[name].is_used for name in made.outputs)
    for tensor in (*made.inputs, *stop_call("x").inputs):
        declared = STOCK_INPUT_BY_NAME[tensor.name]
        assert declared.is_used
        assert tensor.data_type == declared.data_type
        assert tensor.shape[0] == 1
        assert len(tensor.shape) == 1 + len(declared.dims)
        assert all(want in (-1, got) for want, got in zip(declared.dims, tensor.shape[1:], strict=True))
        assert math.prod(tensor.shape) == len(tensor.values)
        assert all(type(value) is TYPES[tensor.data_type] for value in tensor.values)
