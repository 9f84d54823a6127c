"""From a bundle to an engine with the bundle's limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from tiny_checkpoints import QUANTIZED, fp8_tensors, write

from seekserve_backend.contract.bundle import Bundle, KvCache, Limits, Parallel
from seekserve_backend.engines.port import EngineError, EngineRequest
from seekserve_backend.engines.reference.engine import ReferenceEngine

pytestmark = pytest.mark.needs_local


def bundle(**changes: Any) -> Bundle:
    fields: dict[str, Any] = {
        "name": "tiny",
        "family": "deepseek-v3",
        "engine": "reference",
        "toolkit_version": "0",
        "engine_version": "5",
        "gpu": None,
        "parallel": Parallel(),
        "weights_dtype": "fp8_block",
        "weights_bytes": 1,
        "limits": Limits(max_seq_len_tokens=64, max_batch_size=4, max_num_tokens=64, prefill_chunk_tokens=16),
        "kv": KvCache(dtype="fp8_e4m3", block_tokens=8, capacity_blocks=32, bytes_per_token=3 * 24),
        "step_model": None,
        "sources": {},
        "files": {},
    }
    return Bundle(**{**fields, **changes})


def test_a_bundle_becomes_an_engine_with_its_limits(tmp_path: Path) -> None:
    write(tmp_path / "weights", "v3", fp8_tensors("v3"), **QUANTIZED)
    engine = ReferenceEngine(tmp_path, bundle())
    info = engine.info
    assert (info.kind, info.max_seq_len_tokens, info.max_batch_size, info.vocab_size) == ("reference", 64, 4, 80)
    assert (info.block_tokens, info.kv_total_blocks, info.eos_ids) == (8, 32, (1,))
    engine.add(EngineRequest(id="a", prompt_ids=(1, 2, 3), max_tokens=1, stop_ids=(79,)))
    assert len(engine.step(0.0).ends) == 1


def test_a_small_model_gets_one_thread_unless_told_otherwise(tmp_path: Path) -> None:
    write(tmp_path / "weights", "v3", fp8_tensors("v3"), **QUANTIZED)
    ReferenceEngine(tmp_path, bundle(), threads=2)
    assert torch.get_num_threads() == 2
    ReferenceEngine(tmp_path, bundle())
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine": "trtllm-pytorch"}, "is built for the engine 'trtllm-pytorch'"),
        (
            {"kv": KvCache(dtype="bf16", block_tokens=8, capacity_blocks=32, bytes_per_token=72)},
            "says 72 KV bytes per token, its weights imply 144 in bf16",
        ),
    ],
)
def test_a_bundle_that_does_not_match_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    write(tmp_path / "weights", "v3", fp8_tensors("v3"), **QUANTIZED)
    with pytest.raises(EngineError, match=says):
        ReferenceEngine(tmp_path, bundle(**changes))
