"""Arguments of tensorrt_llm.LLM: from the plan, from the guides, from a person; conflicts and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.gpu_builds import settled

from seekserve.engine.llm_args import draft_length_name, nested, yaml_text
from seekserve.errors import ConfigError, ConflictError
from seekserve.plan.curated import conditions, known_profiles
from seekserve.trtllm import resolve_version


def test_host_cache_and_a_cap_in_tokens_are_given_for_each_rank_and_pool() -> None:
    plan, args, _ = settled(
        "deepseek-v3", gpu="h200", tp=8, attention_dp=True, host_cache_gib=64.0, kv_capacity_tokens=1_000_000
    )
    assert args.values["kv_cache_config.host_cache_size"] == 8 * 1024**3
    assert args.values["kv_cache_config.max_tokens"] == 1_000_000 // 8 // 64 * 64
    assert plan.kv.capacity_tokens == args.values["kv_cache_config.max_tokens"] * 8


def test_what_the_plan_turned_off_is_said() -> None:
    _, args, _ = settled(
        "r1-distill-qwen-7b", gpu="h200", gpus=1, cuda_graphs=False, chunked_prefill=False, kv_uvm=True
    )
    assert args.values["cuda_graph_config"] is None
    assert args.values["enable_chunked_prefill"] is False
    assert args.values["kv_cache_config.use_uvm"] is True
    assert not any(path.startswith(("moe_", "cuda_graph_config.")) for path in args.values)


@pytest.mark.parametrize(("version", "name"), [("1.2", "num_nextn_predict_layers"), ("1.4", "max_draft_len")])
def test_the_draft_length_is_spelt_as_the_version_spells_it(version: str, name: str) -> None:
    assert draft_length_name(resolve_version(version)) == name
    _, args, warnings = settled("deepseek-v3", gpu="h200", trtllm_version=version, mtp=3)
    assert args.values[f"speculative_config.{name}"] == 3
    assert "3 tokens are drafted with 1 MTP layer, which runs 3 times in a step" in warnings


@pytest.mark.parametrize(
    ("name", "gpu", "flags", "backend"),
    [
        ("deepseek-v3", "h200", {}, "CUTLASS"),
        ("deepseek-v3", "b200", {}, "DEEPGEMM"),
        ("deepseek-r1-nvfp4", "b200", {}, "CUTLASS"),
        ("deepseek-r1-nvfp4", "b200", {"profile": "latency"}, "TRTLLM"),
        ("deepseek-v4-flash", "b200", {}, "TRTLLM"),
        ("deepseek-r1-nvfp4", "gb200", {"gpus": 16, "tp": 16, "ep": 16, "pp": 1}, "WIDEEP"),
        ("deepseek-r1-nvfp4", "gb200", {"gpus": 16, "tp": 16, "ep": 16, "pp": 1, "trtllm_version": "1.4"}, None),
        ("r1-distill-qwen-7b", "h200", {"gpus": 1}, None),
    ],
)
def test_the_experts_backend_follows_precision_generation_size_and_version(
    name: str, gpu: str, flags: dict[str, Any], backend: str | None
) -> None:
    _, args, _ = settled(name, gpu=gpu, **flags)
    assert args.values.get("moe_config.backend") == backend


def test_a_person_wins_over_the_guides() -> None:
    _, args, _ = settled(
        "deepseek-v3",
        gpu="h200",
        profile="throughput",
        attention_dp=False,
        mtp=0,
        sets=("stream_interval=2", "moe_config.backend=TRITON"),
    )
    assert args.values["enable_attention_dp"] is False
    assert not any(path.startswith("speculative_config") for path in args.values)
    assert args.values["moe_config.backend"] == "TRITON"
    assert (args.values["stream_interval"], args.sources["stream_interval"]) == (2, "flag --set")


def test_the_file_of_arguments_is_laid_under_the_flags(tmp_path: Path) -> None:
    extra = tmp_path / "extra.yaml"
    extra.write_text("stream_interval: 5\nprint_iter_log: true\n", encoding="utf-8")
    _, args, _ = settled("r1-distill-qwen-7b", gpu="h200", gpus=1, extra_args=extra, sets=("stream_interval=7",))
    assert (args.values["stream_interval"], args.sources["stream_interval"]) == (7, "flag --set")
    assert args.sources["print_iter_log"] == f"file {extra}"


def test_a_guide_s_setting_that_the_version_is_not_known_to_have_is_left_out() -> None:
    _, args, warnings = settled("deepseek-v3.2", gpu="h200")
    assert "custom_tokenizer" not in args.values
    assert any(text.startswith("custom_tokenizer is left out: ") for text in warnings)
    assert args.values["kv_cache_config.enable_block_reuse"] is False
    _, args, _ = settled("deepseek-v3.2", gpu="h200", trtllm_version="1.4")
    assert args.values["custom_tokenizer"] == "deepseek_v32"
    assert args.values["kv_cache_config.enable_block_reuse"] is True


@pytest.mark.parametrize(
    ("name", "flags", "text"),
    [
        ("deepseek-v4-flash", {"gpu": "b200", "indexer_dtype": "fp8"}, "keeps those of V4 in fp4"),
        ("deepseek-v4-flash", {"gpu": "b200", "retain_prompt_priority": 80}, "enable_block_reuse, which is off"),
        ("deepseek-v3", {"gpu": "h200", "indexer_dtype": "fp4"}, "has no indexer"),
        ("deepseek-v3", {"gpu": "h200", "mtp": 1, "max_beam_width": 2}, "drafts are for one beam"),
        ("deepseek-v3", {"gpu": "h200", "sets": ("max_beam_width=2",)}, "--max-beam-width"),
    ],
)
def test_settings_without_effect_or_against_each_other_are_refused(name: str, flags: dict[str, Any], text: str) -> None:
    with pytest.raises(ConflictError) as caught:
        settled(name, **flags)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("sets", "texts"),
    [
        (("tensor_parallel_size=4",), ["tensor_parallel_size: is 4 (flag --set), but the plan says 8", "with --tp"]),
        (("max_num_tokens=8192",), ["but the plan says 1280", "with --max-num-tokens"]),
        (("kv_cache_config.max_gpu_total_bytes=1000000",), ["the plan was made without it", "--kv-capacity-tokens"]),
        (("kv_cache_config.use_uvm=true",), ["the plan was made without it", "--kv-uvm"]),
        (("kv_cache_config.dtype=auto",), ["is 'auto' (flag --set), but the plan says 'fp8'"]),
        (("context_parallel_size=2",), ["the plan was made without it"]),
        (("skip_tokenizer_init=false",), ["the service needs it"]),
        (("enable_iter_perf_stats=false",), ["the scheduler reads"]),
        (("cuda_graph_config=null",), ["--no-cuda-graphs"]),
        (("model=/models/other",), ["the bundle says what is loaded"]),
        (("pipeline_parallel_size=2", "max_batch_size=3"), ["2 problems", "--pp", "--max-batch-size"]),
        (
            ("speculative_config.decoding_type=MTP", "speculative_config.num_nextn_predict_layers=2"),
            ["plan drafts 0", "--mtp"],
        ),
    ],
)
def test_an_argument_that_the_plan_resolved_otherwise_is_a_conflict(sets: tuple[str, ...], texts: list[str]) -> None:
    with pytest.raises(ConflictError) as caught:
        settled("deepseek-v3", gpu="h200", sets=sets)
    for text in texts:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"sets": ("moe_backend=CUTLASS",)}, "write moe_config.backend"),
        ({"sets": ("strem_interval=3",)}, "did you mean stream_interval"),
        ({"sets": ("stream_interval=fast",)}, "is not"),
        ({"sets": ("kv_cache_config=[]",)}, "kv_cache_config"),
        ({"sets": ("max_draft_len=3",)}, "speculative_config"),
        ({"sets": ("moe_config.backend=TRTLLM",)}, "TRTLLM has kernels for SM100"),
        ({"sets": ("nonsense",)}, "not of the form path=value"),
        ({"sets": ("speculative_config.decoding_type=Eagle3",)}, "needs a draft model"),
        ({"max_num_tokens": 5000}, "needs a multiple of the block of 64 tokens"),
        ({"retain_prompt_priority": 101}, "from 0 to 100, got 101"),
        ({"decode_priority": -1}, "from 0 to 100, got -1"),
        ({"retain_prompt_tokens": 9}, "for what --retain-prompt-priority"),
        ({"retain_prompt_priority": 9, "retain_prompt_s": 0.0}, "must be above 0"),
        ({"max_beam_width": 0}, "must be at least 1, got 0"),
        ({"build_flags": ("a b=1",)}, "not of the form NAME=VALUE"),
        ({"build_flags": ("x=1", "x=2")}, "given twice"),
    ],
)
def test_an_argument_that_the_version_would_refuse_is_refused_here(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settled("deepseek-v3", gpu="h200", **flags)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "sets",
    [
        ("tensor_parallel_size=8", "kv_cache_config.use_uvm=false", "max_beam_width=1"),
        ("backend=pytorch", "context_parallel_size=1", "kv_cache_config.max_gpu_total_bytes=0"),
        ("kv_cache_config.enable_block_reuse=false",),
    ],
)
def test_saying_what_the_plan_says_or_leaves_open_is_no_conflict(sets: tuple[str, ...]) -> None:
    settled("deepseek-v3", gpu="h200", sets=sets)


def test_a_draft_model_of_another_kind_is_taken_with_a_warning() -> None:
    sets = (
        "speculative_config.decoding_type=NGram",
        "speculative_config.max_draft_len=3",
        "speculative_config.max_matching_ngram_size=2",
    )
    _, _, warnings = settled("r1-distill-qwen-7b", gpu="h200", gpus=1, sets=sets)
    assert any("the plan counts no memory for its draft model" in text for text in warnings)


def test_lists_stand_on_one_line_and_null_is_written() -> None:
    values = {"x.sizes": [1, 2], "tensor_parallel_size": 2, "cuda_graph_config": None}
    text = yaml_text(nested(values), ["a comment"])
    assert text == "# a comment\ntensor_parallel_size: 2\ncuda_graph_config: null\nx:\n  sizes: [1, 2]\n"


def test_the_table_of_the_guides_names_known_conditions_and_sources_only() -> None:
    known = {"families", "architectures", "weights", "sms", "layers", "min_ep", "max_ep"}
    known |= {"attention_dp", "mtp", "moe_backend", "below", "engines"}
    assert all(set(when) <= known for when in conditions())
    assert len(known_profiles()) == len(set(known_profiles())) >= 8
