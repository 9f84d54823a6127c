from __future__ import annotations

import pytest

from seekserve_backend.contract.tensors import INPUT_BY_NAME, INPUTS, OUTPUTS, Handling, TensorSpec

TRITON_TYPES = {"STRING", "INT32", "INT64", "UINT64", "FP32", "BOOL"}
NEUTRAL_TYPES = {"STRING": str, "INT32": int, "INT64": int, "UINT64": int, "FP32": float, "BOOL": bool}


@pytest.mark.parametrize("specs", [INPUTS, OUTPUTS])
def test_names_are_unique(specs: tuple[TensorSpec, ...]) -> None:
    names = [spec.name for spec in specs]
    assert len(set(names)) == len(names)


def test_a_spec_is_found_by_its_name() -> None:
    assert all(INPUT_BY_NAME[spec.name] is spec for spec in INPUTS)


@pytest.mark.parametrize("spec", [*INPUTS, *OUTPUTS], ids=lambda spec: spec.name)
def test_types_and_ranks_are_those_of_triton(spec: TensorSpec) -> None:
    assert spec.data_type in TRITON_TYPES
    assert spec.dims in ((1,), (-1,), (-1, -1))


@pytest.mark.parametrize("spec", INPUTS, ids=lambda spec: spec.name)
def test_an_input_is_one_value_or_one_list(spec: TensorSpec) -> None:
    assert len(spec.dims) == 1


@pytest.mark.parametrize("spec", INPUTS, ids=lambda spec: spec.name)
def test_only_inputs_that_do_nothing_have_a_neutral_value(spec: TensorSpec) -> None:
    if spec.handling is Handling.USED:
        assert spec.neutral is None
        assert spec.help
    elif spec.neutral is not None:
        assert type(spec.neutral) is NEUTRAL_TYPES[spec.data_type]


def test_what_a_stock_streaming_client_sends_is_taken() -> None:
    sent = {"text_input": "STRING", "max_tokens": "INT32", "stream": "BOOL"}
    assert {name: INPUT_BY_NAME[name].data_type for name in sent} == sent
    assert all(INPUT_BY_NAME[name].handling is Handling.USED and not INPUT_BY_NAME[name].ours for name in sent)


def test_the_text_comes_out_under_the_stock_name() -> None:
    assert OUTPUTS[0].name == "text_output"
    assert not OUTPUTS[0].ours
