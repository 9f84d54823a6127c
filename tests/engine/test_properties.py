"""Whatever is asked: a refusal in our own words, or arguments that agree with the plan and pass the strict reader."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.gpu_builds import settled
from tests.engine.strict_reader import read_strictly

from seekserve.engine.llm_args import leaves, nested, yaml_text
from seekserve.errors import SeekserveError

MODELS = [
    ("deepseek-v3", "h200"),
    ("deepseek-v3", "b200"),
    ("deepseek-r1-nvfp4", "b200"),
    ("deepseek-v3.2", "h200"),
    ("deepseek-v4-flash", "b200"),
    ("r1-distill-qwen-7b", "a100-sxm-80gb"),
]
FLAGS: dict[str, st.SearchStrategy[Any]] = {
    "gpus": st.sampled_from([8, 16]),
    "tp": st.sampled_from([1, 2, 4, 8, 16]),
    "ep": st.sampled_from([1, 2, 8]),
    "attention_dp": st.booleans(),
    "mtp": st.integers(0, 3),
    "kv_dtype": st.sampled_from(["fp8_e4m3", "bf16"]),
    "kv_fraction": st.floats(0.1, 0.95),
    "max_batch_size": st.integers(1, 512),
    "max_num_tokens": st.sampled_from([512, 1000, 4096, 8192]),
    "prefill_chunk_tokens": st.sampled_from([128, 256, 1024]),
    "max_seq_len_tokens": st.sampled_from([2048, 8192, 32768]),
    "chunked_prefill": st.booleans(),
    "cuda_graphs": st.booleans(),
    "kv_capacity_tokens": st.integers(10_000, 5_000_000),
    "trtllm_version": st.sampled_from(["1.2", "1.4"]),
    "preset": st.sampled_from(["latency", "throughput", "guide-vllm"]),
    "profile": st.sampled_from(["latency", "throughput"]),
    "sets": st.sampled_from([("stream_interval=2",), ("max_batch_size=7",), ("moe_config.backend=TRTLLM",)]),
}


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    """A few flags at a time: with many of them nearly everything is a refusal."""
    names = draw(st.lists(st.sampled_from(sorted(FLAGS)), max_size=4, unique=True))
    return {name: draw(FLAGS[name]) for name in names}


@settings(max_examples=20, deadline=None)
@given(model=st.sampled_from(MODELS), flags=asked())
def test_a_build_is_refused_in_a_sentence_or_agrees_with_its_plan(
    model: tuple[str, str], flags: dict[str, Any]
) -> None:
    name, gpu = model
    try:
        plan, args, _ = settled(name, gpu=gpu, **flags)
    except SeekserveError:
        return
    assert plan.deployment is not None
    version = plan.deployment.target.version
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "llm_args.yaml"
        path.write_text(yaml_text(nested(args.values), []), encoding="utf-8")
        read = read_strictly(path, version[:3])
    assert leaves(read) == args.values
    assert set(args.sources) == set(args.values)
    assert read["tensor_parallel_size"] * read["pipeline_parallel_size"] == plan.tp * plan.pp
    assert read["max_batch_size"] == plan.limits.max_batch_size
    assert read["max_num_tokens"] == plan.limits.max_num_tokens
    assert read["max_seq_len"] == plan.limits.max_seq_len_tokens
    assert plan.limits.prefill_chunk_tokens <= plan.limits.max_num_tokens
    assert read["kv_cache_config"]["tokens_per_block"] == plan.kv.block_tokens
    assert (read["kv_cache_config"].get("dtype") == "fp8") is (plan.kv.dtype == "fp8_e4m3")
