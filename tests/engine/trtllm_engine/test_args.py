"""llm_args.yaml of an engine: what the plan decides, the user's own on top, and nothing that is built in."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.engine.trtllm_engine.machine import Case, Make, dry, flags_of

from seekserve.errors import ConfigError, ConflictError
from seekserve_backend.contract.bundle import Retention


@pytest.mark.parametrize(
    ("args", "phrase"),
    [
        ({"build_config": {"max_batch_size": 4}}, "build_config: is built into the engine"),
        ({"max_input_len": 100}, "max_input_len: is built into the engine"),
        ({"speculative_config": {"decoding_type": "MTP"}}, "speculative_config: is built into the engine"),
        ({"max_seq_len": 100}, "change it with --max-seq-len"),
        ({"max_batch_size": 1}, "change it with --max-batch-size"),
        ({"kv_cache_config": {"dtype": "fp8"}}, "change it with --kv-dtype"),
        ({"kv_cache_config": {"tokens_per_block": 64}}, "change it with --block-tokens"),
        ({"enable_chunked_prefill": False}, "change it with --chunked-prefill"),
        ({"tensor_parallel_size": 2}, "change it with --tp"),
        ({"model": "elsewhere"}, "the bundle says what is loaded"),
    ],
)
def test_what_is_built_in_is_no_argument_of_the_run_time(v2_lite: Case, args: dict[str, Any], phrase: str) -> None:
    with pytest.raises(ConflictError, match=phrase):
        dry(v2_lite, args=args)


@pytest.mark.parametrize(
    ("args", "phrase"),
    [
        ({"attn_backend": "TRTLLM"}, "TensorRT engine backend refuses it"),
        ({"batching_typ": "INFLIGHT"}, "did you mean batching_type"),
        ({"guided_decoding_backend": "llguidance"}, "works with the PyTorch backend only"),
    ],
)
def test_arguments_of_the_other_backend_are_refused(v2_lite: Case, args: dict[str, Any], phrase: str) -> None:
    with pytest.raises(ConfigError, match=phrase):
        dry(v2_lite, args=args)


def test_the_user_s_own_arguments_are_laid_over_the_plan_s(v2_lite: Case) -> None:
    given = {"kv_cache_config": {"enable_partial_reuse": False}, "batching_type": "INFLIGHT"}
    places = {"batching_type": "flag --set batching_type"}
    outcome = dry(v2_lite, args=given, args_sources=places)
    args = yaml.safe_load(outcome.texts["llm_args.yaml"])
    assert args["kv_cache_config"] == {
        "free_gpu_memory_fraction": 0.9,
        "enable_block_reuse": True,
        "enable_partial_reuse": False,
    }
    assert args["batching_type"] == "INFLIGHT"
    assert outcome.bundle.sources["llm_args.batching_type"] == "flag --set batching_type"


def test_cache_wishes_reach_the_run_time(make: Make) -> None:
    case = make("r1-distill-qwen-7b", kv_dtype="bf16", host_cache_gib=8.0, kv_capacity_tokens=100_000, kv_uvm=True)
    cache = yaml.safe_load(dry(case).texts["llm_args.yaml"])["kv_cache_config"]
    assert (cache["host_cache_size"], cache["max_tokens"], cache["use_uvm"]) == (8 * 2**30, 100_000, True)


def test_graphs_are_captured_when_somebody_asks_for_them(make: Make) -> None:
    quiet = yaml.safe_load(dry(make("deepseek-v2-lite")).texts["llm_args.yaml"])
    asked = yaml.safe_load(dry(make("deepseek-v2-lite", cuda_graphs=True)).texts["llm_args.yaml"])
    assert "extended_runtime_perf_knob_config" not in quiet
    assert asked["extended_runtime_perf_knob_config"] == {"cuda_graph_mode": True}


def test_beams_and_retention_are_in_the_bundle(v2_lite: Case) -> None:
    outcome = v2_lite.build(max_beam_width=4, retention=Retention(prompt_priority=80))
    spec = outcome.bundle.trtllm
    assert spec is not None
    assert (spec.max_beam_width, spec.retention) == (4, Retention(prompt_priority=80))
    assert flags_of(outcome)["--max_beam_width"] == "4"


def test_a_step_is_cut_to_what_all_requests_together_hold(make: Make) -> None:
    case = make("deepseek-v2-lite", max_batch_size=1, max_seq_len_tokens=2048, max_num_tokens=8192)
    bundle = case.build().bundle
    assert (bundle.limits.max_num_tokens, bundle.limits.prefill_chunk_tokens) == (2048, 2048)
    assert bundle.sources["limits.max_num_tokens"].startswith("derived")
