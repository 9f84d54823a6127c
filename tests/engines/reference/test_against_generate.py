"""Greedy output is `generate`'s, whatever else runs, whenever it arrives and however the prompt is cut."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONFIGS, assert_same_greedy, make_engine, make_model, run_all

from seekserve_backend.engines.port import EngineRequest

pytestmark = pytest.mark.needs_local

token_ids = st.integers(0, 79)
arrivals = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.lists(token_ids, min_size=1, max_size=24),
        st.integers(1, 8),
        st.lists(token_ids, max_size=6),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("kv_dtype", ["fp32", "bf16", "fp8_e4m3"])
@pytest.mark.parametrize("model_name", sorted(CONFIGS))
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    drawn=arrivals,
    block_tokens=st.integers(1, 9),
    chunk=st.integers(1, 20),
    max_num_tokens=st.integers(1, 40),
    max_batch=st.integers(1, 6),
)
def test_greedy_output_equals_generate(
    model_name: str,
    kv_dtype: str,
    drawn: list[tuple[int, list[int], int, list[int]]],
    block_tokens: int,
    chunk: int,
    max_num_tokens: int,
    max_batch: int,
) -> None:
    model = make_model(model_name)
    requests = [
        (step, EngineRequest(id=str(i), prompt_ids=tuple(prompt), max_tokens=max_tokens, stop_ids=tuple(stop_ids)))
        for i, (step, prompt, max_tokens, stop_ids) in enumerate(drawn)
    ]
    engine = make_engine(
        model,
        kv_dtype=kv_dtype,
        block_tokens=block_tokens,
        blocks=40,
        max_batch_size=max_batch,
        max_num_tokens=max_num_tokens,
        prefill_chunk_tokens=chunk,
        max_seq_len_tokens=32,
    )
    outcome = run_all(engine, requests)
    assert engine.stats().kv_free_blocks == 40
    for _, request in requests:
        produced, end = outcome[request.id]
        assert_same_greedy(model, request, produced, end, kv_dtype)


@pytest.mark.parametrize("model_name", sorted(CONFIGS))
def test_passes_split_by_size_change_nothing(model_name: str) -> None:
    model = make_model(model_name)
    requests = [
        (i, EngineRequest(id=str(i), prompt_ids=tuple((7 * i + 3 * j) % 80 for j in range(40)), max_tokens=6))
        for i in range(8)
    ]
    engine = make_engine(model, blocks=200, max_num_tokens=200, prefill_chunk_tokens=100)
    outcome = run_all(engine, requests)
    for _, request in requests:
        assert_same_greedy(model, request, *outcome[request.id], "fp32")
