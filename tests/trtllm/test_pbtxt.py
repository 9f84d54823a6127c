"""Parameters of the stock Triton models."""

from __future__ import annotations

from typing import Any

import pytest

from seekserve.errors import ConfigError
from seekserve.trtllm import validate_pbtxt_parameters
from seekserve.trtllm.pbtxt import MODELS
from seekserve.trtllm.tables import table_names

Parameters = dict[str, Any]
GOOD: Parameters = {"gpt_model_type": "inflight_fused_batching", "gpt_model_path": "/engines/1-gpu"}


def errors(parameters: Parameters, version: str = "1.2.1", **more: Any) -> dict[str, str]:
    found = validate_pbtxt_parameters(parameters, version, **more)
    return {each.path: each.text for each in found if each.is_error}


def test_the_models_are_those_of_the_table() -> None:
    assert table_names("pbtxt") == MODELS
    with pytest.raises(ConfigError, match="none of the stock models"):
        validate_pbtxt_parameters({}, "1.2.1", model="ensemble2")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"kv_cache_free_gpu_mem_fraction": "0.85", "enable_kv_cache_reuse": "true", "max_beam_width": "1"},
        {"kv_cache_free_gpu_mem_fraction": 0.85, "enable_kv_cache_reuse": True, "max_beam_width": 1},
        {"gpu_device_ids": "0,1;2,3", "participant_ids": "1,2", "max_attention_window_size": "4096,256"},
        {"max_tokens_in_paged_kv_cache": "", "lora_prefetch_dir": ""},
        {"FORCE_CPU_ONLY_INPUT_TENSORS": "no", "batch_scheduler_policy": "max_utilization"},
        {"lookahead_window_size": "7", "lookahead_ngram_size": "7", "lookahead_verification_set_size": "7"},
        {"gpt_model_path": 's3://bucket/a:b="c"'},
    ],
)
def test_a_right_set_is_accepted_typed_or_as_text(more: Parameters) -> None:
    assert validate_pbtxt_parameters({**GOOD, **more}, "1.2.1") == []


# A documented parameter that no longer exists
@pytest.mark.parametrize("model", ["tensorrt_llm", "preprocessing", "postprocessing"])
def test_tokenizer_type_is_gone_and_the_answer_says_what_to_give(model: str) -> None:
    text = errors({"tokenizer_type": "auto"}, model=model)["tokenizer_type"]
    assert "is removed before 1.2" in text
    assert "tokenizer_dir" in text


@pytest.mark.parametrize(
    ("more", "path", "phrase"),
    [
        ({"enable_trt_overlap": "true"}, "enable_trt_overlap", "is removed before 1.2"),
        ({"kv_cache_free_gpu_memory_fraction": "0.9"}, "kv_cache_free_gpu_memory_fraction", "_free_gpu_mem_fraction?"),
        ({"batching_strategy": "v1"}, "batching_strategy", "the parameter is gpt_model_type"),
        ({"engine_dir": "/e"}, "engine_dir", "the parameter is gpt_model_path"),
        ({"max_batch_size": "8"}, "max_batch_size", "it belongs to the engine"),
        ({"gpt_model_type": "inflight"}, "gpt_model_type", "is not among the allowed values"),
        ({"batch_scheduler_policy": "max_utilisation"}, "batch_scheduler_policy", "did you mean max_utilization?"),
        ({"kv_cache_free_gpu_mem_fraction": "1.5"}, "kv_cache_free_gpu_mem_fraction", "at most 1"),
        ({"kv_cache_free_gpu_mem_fraction": "nan"}, "kv_cache_free_gpu_mem_fraction", "where a number is due"),
        ({"max_beam_width": "1.0"}, "max_beam_width", "where a whole number is due"),
        ({"enable_kv_cache_reuse": "yes"}, "enable_kv_cache_reuse", "where true or false is due"),
        ({"gpu_device_ids": "0:1"}, "gpu_device_ids", 'GPU numbers as in "0,1;2,3"'),
        ({"max_attention_window_size": "0"}, "max_attention_window_size", "a number below 1"),
        ({"max_beam_width": "${max_beam_width}"}, "max_beam_width", "still holds the placeholder"),
        ({"gpt_model_path": ""}, "gpt_model_path", "is empty"),
        ({"lookahead_window_size": "7"}, "lookahead_ngram_size", "all three or none"),
        ({"decoding_mode": "lookahead"}, "decoding_mode", "its three sizes are not set"),
        ({"guided_decoding_backend": "xgrammar"}, "guided_decoding_backend", "neither tokenizer_dir nor"),
        ({"cross_kv_cache_fraction": "0.5"}, "cross_kv_cache_fraction", "encoder-decoder"),
    ],
)
def test_a_wrong_parameter_is_refused(more: Parameters, path: str, phrase: str) -> None:
    assert phrase in errors({**GOOD, **more})[path]


def test_what_a_model_cannot_start_without_is_asked_for() -> None:
    assert set(errors({})) == {"gpt_model_type", "gpt_model_path"}
    assert set(errors({}, model="preprocessing")) == {"tokenizer_dir"}
    required = set(errors({}, model="placeholders"))
    assert {"triton_backend", "triton_max_batch_size", "decoupled_mode", "logits_datatype"} <= required


def test_reuse_and_chunking_need_an_engine_with_paged_context() -> None:
    asked = {**GOOD, "enable_chunked_context": "true", "enable_kv_cache_reuse": "true"}
    assert set(errors(asked, has_paged_context=False)) == {"enable_chunked_context", "enable_kv_cache_reuse"}
    assert errors(asked, has_paged_context=True) == errors(asked) == {}
    # Reuse is on when nothing is said.
    [finding] = validate_pbtxt_parameters(GOOD, "1.2.1", has_paged_context=False)
    assert (finding.severity, finding.path) == ("warning", "enable_kv_cache_reuse")


def test_the_stock_models_ended_with_the_engines() -> None:
    assert "1.3.0rc20" in errors(GOOD, "1.4")["tensorrt_llm"]
    assert errors(GOOD, "1.3.0rc20") == {}
