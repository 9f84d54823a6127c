"""A user's own arguments: --set and --extra-args."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seekserve.errors import ConfigError
from seekserve.trtllm import load_extra_args, overlay, parse_set


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("kv_cache_config.free_gpu_memory_fraction=0.8", {"kv_cache_config": {"free_gpu_memory_fraction": 0.8}}),
        ("max_num_tokens=4096", {"max_num_tokens": 4096}),
        ("enable_chunked_prefill=True", {"enable_chunked_prefill": True}),
        ("cuda_graph_config=null", {"cuda_graph_config": None}),
        ("cuda_graph_config.batch_sizes=1,2,4", {"cuda_graph_config": {"batch_sizes": [1, 2, 4]}}),
        ("cuda_graph_config.batch_sizes=[1, 2, 4]", {"cuda_graph_config": {"batch_sizes": [1, 2, 4]}}),
        ("revision=123", {"revision": "123"}),
        ('revision="null"', {"revision": "null"}),
        ("revision=null", {"revision": None}),
        ("model=s3://bucket/x:y", {"model": "s3://bucket/x:y"}),
        ("model=/data/a=b, c", {"model": "/data/a=b, c"}),
        ("tokenizer=/da'ta/\"x", {"tokenizer": "/da'ta/\"x"}),
        ("batch_wait_timeout_ms=5", {"batch_wait_timeout_ms": 5}),
        ("env_overrides={A: 1, B: x}", {"env_overrides": {"A": 1, "B": "x"}}),
        ("speculative_config.decoding_type=MTP", {"speculative_config": {"decoding_type": "MTP"}}),
        ("speculative_config.draft_len_schedule={1: 3}", {"speculative_config": {"draft_len_schedule": {1: 3}}}),
        ("kv_cache_config.use_kv_cache_manager_v2=auto", {"kv_cache_config": {"use_kv_cache_manager_v2": "auto"}}),
        ("moe_config.load_balancer=/etc/eplb.yaml", {"moe_config": {"load_balancer": "/etc/eplb.yaml"}}),
    ],
)
def test_a_value_is_typed_by_the_schema_and_taken_as_it_stands(text: str, value: object) -> None:
    assert parse_set([text], "1.4") == value


def test_only_what_was_given_comes_out() -> None:
    given = parse_set(["kv_cache_config.dtype=fp8", "kv_cache_config.tokens_per_block=64"], "1.2.1")
    assert given == {"kv_cache_config": {"dtype": "fp8", "tokens_per_block": 64}}
    assert parse_set([], "1.2.1") == {}


@pytest.mark.parametrize(
    ("texts", "phrase"),
    [
        (["max_num_tokens"], "is not of the form path=value"),
        (["max num tokens=1"], "is not of the form path=value"),
        (["=1"], "is not of the form path=value"),
        (["max_num_tokens=0.9"], "max_num_tokens: '0.9' is not a whole number"),
        (["max_num_tokens=1e3"], "is not a whole number"),
        (["kv_cache_config.free_gpu_memory_fraction=nan"], "is nan where a number is due"),
        (["kv_cache_config.free_gpu_memory_fraction=1.5"], "at most 1"),
        (["enable_chunked_prefill=yes"], "'yes' is not true or false"),
        (["kv_cache_config=[]"], "is an empty list where a mapping is due"),
        (["kv_cache_config.dtpye=fp8"], "did you mean kv_cache_config.dtype?"),
        (["tokenizer=a\nb"], "holds a line break"),
        (["max_batch_size=1", "max_batch_size=2"], "is given twice, as '1' and as '2'"),
        (["kv_cache_config={}", "kv_cache_config.dtype=fp8"], "overlap"),
        (["cuda_graph_config.batch_sizes=[1,"], "not YAML"),
        (["batched_logits_processor=x"], "takes a Python object"),
        (["max_seq_len.x=1"], "where a whole number or null is due"),
    ],
)
def test_a_wrong_flag_is_refused_with_its_path(texts: list[str], phrase: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_set(texts, "1.2.1")
    assert phrase in caught.value.message


def test_the_same_value_twice_is_no_conflict() -> None:
    assert parse_set(["max_batch_size=8", "max_batch_size=8"], "1.2.1") == {"max_batch_size": 8}


def test_all_wrong_flags_are_reported_together() -> None:
    with pytest.raises(ConfigError, match="--set: 3 problems"):
        parse_set(["max_num_tokens=x", "tp_size=8", "kv_cache_config.free_gpu_memory_fraction=2"], "1.2.1")


def test_a_removed_argument_is_refused_for_the_version_that_lacks_it() -> None:
    flag = "kv_cache_config.onboard_blocks=true"
    assert parse_set([flag], "1.2.1") == {"kv_cache_config": {"onboard_blocks": True}}
    with pytest.raises(ConfigError, match=r"removed since TensorRT-LLM 1\.4"):
        parse_set([flag], "1.4")


def test_a_part_of_a_union_may_be_set_without_naming_it() -> None:
    assert parse_set(["speculative_config.use_dynamic_tree=true"], "1.2.1")
    with pytest.raises(ConfigError, match=r"exists since TensorRT-LLM 1\.4"):
        parse_set(["speculative_config.enable_penalty=true"], "1.2.1")


def test_a_file_is_read_and_comes_out_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "extra.yaml"
    file.write_text("kv_cache_config:\n  free_gpu_memory_fraction: 0.8\nspeculative_config:\n  max_draft_len: 3\n")
    expected = {"kv_cache_config": {"free_gpu_memory_fraction": 0.8}, "speculative_config": {"max_draft_len": 3}}
    assert load_extra_args(file, "1.4") == expected


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        ("- 1\n", "holds a list where a mapping of arguments is due"),
        ("max_batch_size: 1\nmax_batch_size: 2\n", "line 2: key 'max_batch_size' is given again"),
        ("kv_cache_config: {dtype: fp8\n", "not YAML"),
        ("kv_cache_config: []\n", "is an empty list where a mapping is due"),
        ("free_gpu_memory_fraction: 0.9\ntp_size: 4\n", "2 problems"),
        ("moe_config: !!python/object:os.system {}\n", "not YAML"),
        ("model_kwargs: &a {x: *a}\n", "an alias that holds itself"),
        ("max_batch_size: " + "[" * 5000, "nested too deeply"),
        ("1: 2\n", "is no argument of tensorrt_llm.LLM"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str, phrase: str) -> None:
    file = tmp_path / "extra.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_extra_args(file, "1.4")
    assert phrase in caught.value.message


def test_an_empty_file_says_nothing_and_an_absent_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert load_extra_args(tmp_path / "empty.yaml", "1.4") == {}
    with pytest.raises(ConfigError, match="cannot read"):
        load_extra_args(tmp_path / "absent.yaml", "1.4")


def test_a_layer_is_merged_by_section() -> None:
    base: dict[str, Any] = {"kv_cache_config": {"dtype": "fp8", "tokens_per_block": 64}, "max_batch_size": 8}
    merged, conflicts = overlay(base, {"kv_cache_config": {"tokens_per_block": 32}, "cuda_graph_config": None})
    assert merged == {
        "kv_cache_config": {"dtype": "fp8", "tokens_per_block": 32},
        "max_batch_size": 8,
        "cuda_graph_config": None,
    }
    assert conflicts == []
    assert base["kv_cache_config"]["tokens_per_block"] == 64


def test_a_parallel_size_from_two_places_is_a_conflict() -> None:
    _, [conflict] = overlay({"tensor_parallel_size": 8}, {"tensor_parallel_size": 1})
    assert conflict.text == "tensor_parallel_size: is 1 here, but the plan says 8 (change the plan instead)"
    assert overlay({"tensor_parallel_size": 8}, {"tensor_parallel_size": 8})[1] == []


def test_an_engine_directory_has_arguments_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "extra.yaml"
    file.write_text("extended_runtime_perf_knob_config: {multi_block_mode: false}\n")
    assert load_extra_args(file, "1.2.1", engine_kind="trtllm-engine")
    assert parse_set(["fast_build=true"], "1.2.1", engine_kind="trtllm-engine") == {"fast_build": True}
    with pytest.raises(ConfigError, match="belongs to the TensorRT engine backend"):
        load_extra_args(file, "1.2.1")


def test_a_type_that_differs_between_versions_in_null_only_is_read_as_before() -> None:
    flags = ["kv_connector_config.connector_module=123", "kv_cache_config.free_gpu_memory_fraction=5e-1"]
    assert parse_set(flags, "1.2.1") == {
        "kv_connector_config": {"connector_module": "123"},
        "kv_cache_config": {"free_gpu_memory_fraction": 0.5},
    }
