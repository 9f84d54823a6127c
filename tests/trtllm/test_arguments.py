"""Arguments of tensorrt_llm.LLM by version: what is refused, with which hint, and what is only doubted."""

from __future__ import annotations

from typing import Any

import pytest

from seekserve.errors import ConfigError
from seekserve.trtllm import raise_errors, validate_llm_args
from seekserve.trtllm.arguments import check_names

Args = dict[str, Any]


def errors(args: Args, version: str, **more: Any) -> dict[str, str]:
    return {each.path: each.text for each in validate_llm_args(args, version, **more) if each.is_error}


def warnings(args: Args, version: str, **more: Any) -> dict[str, str]:
    return {each.path: each.text for each in validate_llm_args(args, version, **more) if not each.is_error}


def kv(**settings: object) -> Args:
    return {"kv_cache_config": settings}


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (kv(free_gpu_memory_fracton=0.8), "did you mean kv_cache_config.free_gpu_memory_fraction?"),
        ({"free_gpu_memory_fraction": 0.8}, "did you mean kv_cache_config.free_gpu_memory_fraction?"),
        ({"tokens_per_block": 64}, "did you mean kv_cache_config.tokens_per_block or cp_config.tokens_per_block?"),
        ({"tp_size": 8}, "here it is tensor_parallel_size"),
        ({"max_model_len": 8}, "here it is max_seq_len"),
        ({"gpu_memory_utilization": 0.9}, "here it is kv_cache_config.free_gpu_memory_fraction"),
        ({"kv_cache_dtype": "fp8"}, "write kv_cache_config.dtype"),
        ({"cuda_graph_padding_enabled": True}, "write cuda_graph_config.enable_padding"),
        ({"enable_trtllm_sampler": True}, "write sampler_type"),
    ],
)
@pytest.mark.parametrize("version", ["1.2.1", "1.3.0rc20", "1.4"])
def test_an_unknown_or_old_name_is_refused_with_the_right_one(args: Args, hint: str, version: str) -> None:
    [text] = errors(args, version).values()
    assert hint in text


@pytest.mark.parametrize(
    ("args", "path", "phrase"),
    [
        (kv(onboard_blocks=True), "kv_cache_config.onboard_blocks", "is removed since TensorRT-LLM 1.4"),
        ({"moe_config": {"backend": "WIDEEP"}}, "moe_config.backend", "WIDEEP is removed since TensorRT-LLM 1.4"),
        ({"sampler_type": "TRTLLMSampler"}, "sampler_type", "is removed since TensorRT-LLM 1.4"),
        ({"enable_sleep": True}, "enable_sleep", "write sleep_config"),
        ({"disable_flashinfer_sampling": True}, "disable_flashinfer_sampling", "is removed since TensorRT-LLM 1.4"),
        (
            {"speculative_config": {"decoding_type": "MTP", "acceptance_window": 8}},
            "speculative_config.acceptance_window",
            "write speculative_config.acceptance_rate_window_size",
        ),
        ({"build_config": {"max_batch_size": 4}}, "build_config", "write max_batch_size"),
    ],
)
def test_a_removal_is_an_error_after_it_a_doubt_around_it_and_nothing_before(
    args: Args, path: str, phrase: str
) -> None:
    assert phrase in errors(args, "1.4")[path]
    if path not in ("build_config",):
        assert "unverified for this version (1.3.0rc20)" in warnings(args, "1.3.0rc20")[path]


def test_the_removed_sampler_choice_that_newer_versions_ignore_is_a_warning_only() -> None:
    assert errors({"sampler_type": "auto"}, "1.4") == {}
    assert "ignored" in warnings({"sampler_type": "auto"}, "1.4")["sampler_type"]
    assert validate_llm_args({"sampler_type": "auto"}, "1.2.1") == []


@pytest.mark.parametrize(
    ("args", "path"),
    [
        (kv(use_kv_cache_manager_v2="auto"), "kv_cache_config.use_kv_cache_manager_v2"),
        ({"scheduler_config": {"waiting_queue_policy": "priority"}}, "scheduler_config.waiting_queue_policy"),
        ({"moe_config": {"backend": "MEGAMOE_DEEPGEMM"}}, "moe_config.backend"),
        (kv(disk_cache_path="/cache"), "kv_cache_config.disk_cache_path"),
        ({"generation_config": "auto"}, "generation_config"),
    ],
)
def test_what_came_later_is_refused_before_and_doubted_around(args: Args, path: str) -> None:
    assert path in errors(args, "1.2.1")
    assert "unverified" in warnings(args, "1.3.0rc20")[path]
    assert errors(args, "1.4") == {}


def test_what_only_one_of_the_states_around_a_version_has_is_unverified() -> None:
    args = {"custom_tokenizer": "deepseek_v32", "nvfp4_gemm_config": {"allowed_backends": ["cutlass"]}}
    assert errors(args, "1.2.1") == {}
    found = warnings(args, "1.2.1")
    assert {path for path in found if found[path].startswith(f"{path}: unverified for this version")} == {*args}
    assert validate_llm_args(args, "1.3.0rc20") == []


def test_a_name_of_which_nothing_else_is_known_is_unverified() -> None:
    assert "unverified" in warnings(kv(disk_io_threads=4), "1.4")["kv_cache_config.disk_io_threads"]


def test_a_wrong_value_in_a_doubtful_section_is_an_error_still() -> None:
    args = {"nvfp4_gemm_config": {"allowed_backends": []}}
    assert "at least 1" in errors(args, "1.2.1")["nvfp4_gemm_config.allowed_backends"]


# An override of the wrong type: one error for each bad field, all together
WRONG_TYPES: list[tuple[Args, str, str]] = [
    ({"kv_cache_config": []}, "kv_cache_config", "is an empty list where a mapping is due"),
    (
        kv(free_gpu_memory_fraction="0.9"),
        "kv_cache_config.free_gpu_memory_fraction",
        'is the text "0.9" where a number',
    ),
    (kv(free_gpu_memory_fraction=1.5), "kv_cache_config.free_gpu_memory_fraction", "is 1.5 where at most 1 is due"),
    (kv(free_gpu_memory_fraction=float("nan")), "kv_cache_config.free_gpu_memory_fraction", "is nan where a number"),
    (kv(tokens_per_block=True), "kv_cache_config.tokens_per_block", "is true where a whole number is due"),
    ({"max_num_tokens": 8192.0}, "max_num_tokens", "is 8192.0 where a whole number"),
    ({"max_batch_size": 0}, "max_batch_size", "is 0 where at least 1 is due"),
    ({"enable_chunked_prefill": "yes"}, "enable_chunked_prefill", 'is the text "yes" where true or false'),
    ({"enable_attention_dp": None}, "enable_attention_dp", "is null where true or false is due"),
    ({"cuda_graph_config": {"batch_sizes": "1,2"}}, "cuda_graph_config.batch_sizes", "where a list of whole numbers"),
    ({"batched_logits_processor": "x"}, "batched_logits_processor", "takes a Python object"),
    (
        {"scheduler_config": {"capacity_scheduler_policy": "max_utilization"}},
        "scheduler_config.capacity_scheduler_policy",
        "did you mean MAX_UTILIZATION?",
    ),
    ({"model_kwargs": {"a": 1}, "load_format": "dumy"}, "load_format", "did you mean DUMMY?"),
]


@pytest.mark.parametrize(("args", "path", "phrase"), WRONG_TYPES)
def test_a_wrong_type_names_the_path_what_is_there_and_what_is_due(args: Args, path: str, phrase: str) -> None:
    for version in ("1.2.1", "1.3.0rc20", "1.4"):
        assert phrase in errors(args, version)[path]


def test_all_problems_are_reported_together() -> None:
    args = {**kv(free_gpu_memory_fraction="0.9", tokens_per_block=True, dtypo="fp8"), "max_batch_size": 1.5}
    findings = validate_llm_args(args, "1.2.1")
    with pytest.raises(ConfigError, match="4 problems") as caught:
        raise_errors(findings, "llm_args.yaml")
    assert all(path in caught.value.message for path in errors(args, "1.2.1"))


def test_text_that_looks_like_a_number_is_told_apart_from_text() -> None:
    assert "write it without quotes" in errors(kv(tokens_per_block="64"), "1.4")["kv_cache_config.tokens_per_block"]


def test_validation_adds_nothing_to_what_was_given() -> None:
    args = kv(free_gpu_memory_fraction=0.8)
    validate_llm_args(args, "1.4")
    assert args == {"kv_cache_config": {"free_gpu_memory_fraction": 0.8}}


# One table instead of a template for each version: the nesting of build_config, the transceiver's keys
def test_the_nesting_of_another_backend_is_refused_with_where_its_content_goes() -> None:
    text = errors({"build_config": {"max_batch_size": 4}}, "1.2.1")["build_config"]
    assert "belongs to the TensorRT engine backend" in text
    assert "at the top level" in text


@pytest.mark.parametrize(
    ("settings", "version", "is_refused"),
    [
        ({"backend": "UCX", "max_tokens_in_buffer": 8192}, "1.2.1", False),
        ({"backend": "UCX", "max_num_tokens": 8192}, "1.2.1", True),
        ({"backend": "ucx"}, "1.4", True),
        ({"transceiver_runtime": "auto"}, "1.4", False),
        ({"transceiver_runtime": "auto"}, "1.2.1", True),
    ],
)
def test_the_transceiver_s_settings_follow_the_version(settings: Args, version: str, is_refused: bool) -> None:
    assert bool(errors({"cache_transceiver_config": settings}, version)) == is_refused


def test_backend_pytorch_may_be_written_and_left_out() -> None:
    assert errors({"backend": "pytorch"}, "1.2.1") == errors({}, "1.2.1") == {}
    assert "backend" in errors({"backend": "tensorrt"}, "1.3.0rc20")


def test_a_union_says_which_one_it_is() -> None:
    assert (
        "is missing" in errors({"speculative_config": {"max_draft_len": 1}}, "1.4")["speculative_config.decoding_type"]
    )
    text = errors({"speculative_config": {"decoding_type": "Mtp"}}, "1.4")["speculative_config.decoding_type"]
    assert "did you mean MTP?" in text
    args = {"speculative_config": {"decoding_type": "MTP", "max_matching_ngram_size": 2}}
    assert "speculative_config.max_matching_ngram_size" in errors(args, "1.4")


def test_sparse_attention_of_v4_exists_since_1_4() -> None:
    args = {"sparse_attention_config": {"algorithm": "deepseek_v4", "indexer_k_dtype": "fp8"}}
    assert errors(args, "1.4") == {}
    assert "sparse_attention_config.algorithm" in errors(args, "1.2.1")


def test_an_engine_directory_takes_the_other_class_s_arguments() -> None:
    args = {"cuda_graph_config": {}, "fast_build": True, "normalize_log_probs": True}
    assert set(errors(args, "1.2.1", engine_kind="trtllm-engine")) == {"cuda_graph_config"}
    assert set(errors(args, "1.2.1")) == {"fast_build", "normalize_log_probs"}


def test_engines_are_refused_where_there_are_none() -> None:
    [finding] = validate_llm_args({}, "1.4", engine_kind="trtllm-engine")
    assert "1.3.0rc20" in finding.message


@pytest.mark.parametrize(
    ("args", "path", "refusing", "taking"),
    [
        (kv(max_util_for_resume=0.0), "kv_cache_config.max_util_for_resume", "1.4", "1.2.1"),
        (
            {"speculative_config": {"decoding_type": "MTP", "max_concurrency": 0}},
            "speculative_config.max_concurrency",
            "1.4",
            "1.2.1",
        ),
    ],
)
def test_a_bound_may_belong_to_some_versions_only(args: Args, path: str, refusing: str, taking: str) -> None:
    assert path in errors(args, refusing)
    assert errors(args, taking) == {}
    assert "unverified for this version (1.3.0rc20)" in warnings(args, "1.3.0rc20")[path]


@pytest.mark.parametrize(
    ("args", "path", "version"),
    [
        ({"backend": None}, "backend", "1.4"),
        ({"gms_config": None}, "gms_config", "1.4"),
        ({"gms_config": {"tag": " "}}, "gms_config.tag", "1.4"),
        ({"mx_config": {"preshard_strategy": "x"}}, "mx_config.preshard_strategy", "1.4"),
        ({"layer_wise_benchmarks_config": None}, "layer_wise_benchmarks_config", "1.3.0rc20"),
        (kv(max_attention_window=[0]), "kv_cache_config.max_attention_window", "1.2.1"),
        (kv(free_gpu_memory_fraction=None), "kv_cache_config.free_gpu_memory_fraction", "1.4"),
        (kv(mamba_state_config={"x": 1}), "kv_cache_config.mamba_state_config.x", "1.4"),
        (
            {"sparse_attention_config": {"algorithm": "skip_softmax", "seq_len_threshold": 8}},
            "sparse_attention_config.seq_len_threshold",
            "1.4",
        ),
        (
            {
                "speculative_config": {
                    "decoding_type": "Eagle",
                    "max_draft_len": 2,
                    "speculative_model": "d",
                    "sa_config": {},
                }
            },
            "speculative_config.sa_config",
            "1.4",
        ),
    ],
)
def test_what_the_package_s_own_types_refuse_is_refused(args: Args, path: str, version: str) -> None:
    assert list(errors(args, version)) == [path]


def test_a_mapping_of_adapter_modules_is_an_argument_in_every_version() -> None:
    args = {"lora_config": {"trtllm_modules_to_hf_modules": {"attn_q": "q_proj"}}}
    for version in ("1.2.1", "1.3.0rc20", "1.4"):
        assert validate_llm_args(args, version) == []


def test_settings_of_the_engine_class_are_checked_where_the_state_that_types_them_agrees() -> None:
    args = {
        "quant_config": {"quant_algo": "FP8"},
        "calib_config": {"device": "cuda"},
        "build_config": {"dry_run": False},
    }
    assert validate_llm_args(args, "1.2.1", engine_kind="trtllm-engine") == []
    wrong = {"calib_config": {"devcie": "cuda"}}
    assert "unverified" in warnings(wrong, "1.2.1", engine_kind="trtllm-engine")["calib_config.devcie"]


def test_a_section_laid_over_another_need_not_be_whole() -> None:
    part = {"kv_connector_config": {"connector_module": "m"}}
    assert [each for each in check_names(part, "1.2.1", "trtllm-pytorch") if each.is_error] == []
    missing = {"kv_connector_config.connector_scheduler_class", "kv_connector_config.connector_worker_class"}
    assert set(errors(part, "1.2.1")) == missing
