"""The stock model's tensors: complete, each once, and what the adapter relies on is there."""

from __future__ import annotations

import pytest

from seekserve_backend.contract.stock_model import (
    STOCK_INPUT_BY_NAME,
    STOCK_INPUTS,
    STOCK_OUTPUT_BY_NAME,
    STOCK_OUTPUTS,
    StockTensor,
)

TRITON_TYPES = {"STRING", "INT32", "INT64", "UINT8", "UINT64", "FP16", "FP32", "BOOL"}


@pytest.mark.parametrize("tensors", [STOCK_INPUTS, STOCK_OUTPUTS])
def test_names_are_unique(tensors: tuple[StockTensor, ...]) -> None:
    assert len({tensor.name for tensor in tensors}) == len(tensors)


def test_the_tables_are_as_long_as_the_shipped_file() -> None:
    assert (len(STOCK_INPUTS), len(STOCK_OUTPUTS)) == (62, 21)


def test_exactly_the_two_lengths_are_required() -> None:
    assert [tensor.name for tensor in STOCK_INPUTS if not tensor.is_optional] == ["input_lengths", "request_output_len"]


@pytest.mark.parametrize("tensor", [*STOCK_INPUTS, *STOCK_OUTPUTS], ids=lambda tensor: tensor.name)
def test_types_ranks_and_reshapes_are_consistent(tensor: StockTensor) -> None:
    assert tensor.data_type in TRITON_TYPES
    assert 1 <= len(tensor.dims) <= 3
    assert not (tensor.is_reshaped and tensor.is_ragged)
    assert not tensor.is_reshaped or tensor.dims == (1,)
    assert bool(tensor.set_by) == ("logits" in tensor.name and "return" not in tensor.name) or tensor.set_by


def test_what_the_adapter_sends_and_reads_is_marked() -> None:
    for name in ("input_ids", "input_lengths", "request_output_len", "streaming", "stop", "end_id", "seed"):
        assert STOCK_INPUT_BY_NAME[name].is_used
    assert STOCK_OUTPUT_BY_NAME["output_ids"].is_used
