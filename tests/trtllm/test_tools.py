"""Flags of trtllm-build, convert_checkpoint.py and quantize.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seekserve.errors import ConfigError
from seekserve.trtllm import TOOLS, ModelCase, validate_build_flags
from seekserve.trtllm.tables import table_names

Flags = dict[str, Any]
BUILD: Flags = {"checkpoint_dir": "ckpt", "max_seq_len": 4096, "max_batch_size": 8, "max_num_tokens": 8192}
CONVERT: Flags = {"model_dir": "hf", "output_dir": "ckpt"}


def errors(flags: Flags, version: str = "1.2.1", **more: Any) -> dict[str, str]:
    return {each.path: each.text for each in validate_build_flags(flags, version, **more) if each.is_error}


def warnings(flags: Flags, version: str = "1.2.1", **more: Any) -> dict[str, str]:
    return {each.path: each.text for each in validate_build_flags(flags, version, **more) if not each.is_error}


# The command lines of the READMEs of contrib/deepseek_v1 and deepseek_v2, and a distill's
README_LINES: list[tuple[str, Flags]] = [
    ("convert-deepseek-v1", {**CONVERT, "dtype": "bfloat16", "tp_size": 1}),
    (
        "trtllm-build",
        {**BUILD, "gpt_attention_plugin": "bfloat16", "gemm_plugin": "bfloat16", "moe_plugin": "bfloat16"},
    ),
    ("convert-deepseek-v2", {**CONVERT, "dtype": "bfloat16", "tp_size": 8}),
    (
        "trtllm-build",
        {
            **BUILD,
            "--gpt_attention_plugin": "bfloat16",
            "--gemm_plugin": "bfloat16",
            "--max_batch_size": 4,
            "--max_input_len": 2048,
            "--use_paged_context_fmha": "enable",
        },
    ),
    (
        "quantize",
        {"model_dir": "hf", "dtype": "float16", "qformat": "fp8", "kv_cache_dtype": "fp8", "calib_size": 512},
    ),
    ("convert-qwen", {**CONVERT, "dtype": "bfloat16", "tp_size": 2}),
    ("convert-llama", {**CONVERT, "dtype": "bfloat16", "tp_size": 2}),
]


@pytest.mark.parametrize(("tool", "flags"), README_LINES)
def test_the_command_lines_of_the_documentation_are_accepted(tool: str, flags: Flags) -> None:
    flags = {name.removeprefix("--"): value for name, value in flags.items()}
    assert validate_build_flags(flags, "1.2.1", tool=tool) == []


def test_the_tools_are_those_of_the_table() -> None:
    assert table_names("tools") == TOOLS
    with pytest.raises(ConfigError, match="none of the tools"):
        validate_build_flags({}, "1.2.1", tool="trtllm-refit")


def test_no_tool_is_left_in_1_4() -> None:
    for tool in TOOLS:
        assert "engines ended with 1.3.0rc20" in errors({}, "1.4", tool=tool)[tool]


def test_flags_of_the_last_candidate_are_unverified() -> None:
    assert "unverified for this version (1.3.0rc20)" in warnings(BUILD, "1.3.0rc20")["trtllm-build"]
    assert errors(BUILD, "1.3.0rc20") == {}


@pytest.mark.parametrize(
    ("more", "path", "phrase"),
    [
        ({"max_batchsize": 8}, "--max_batchsize", "did you mean --max_batch_size?"),
        ({"auto_parallel": 2}, "--auto_parallel", "is removed since late 2025"),
        ({"use_custom_all_reduce": "enable"}, "--use_custom_all_reduce", "is removed since 2024"),
        ({"max_batch_size": "8"}, "--max_batch_size", 'is the text "8" where a whole number'),
        ({"use_paged_context_fmha": True}, "--use_paged_context_fmha", "is true where text is due"),
        ({"use_paged_context_fmha": "on"}, "--use_paged_context_fmha", "one of enable, disable"),
        ({"gemm_plugin": "fp16"}, "--gemm_plugin", "is not among the allowed values"),
        ({"tokens_per_block": 48}, "--tokens_per_block", "is 48, no power of two (such as 32)"),
        ({"max_num_tokens": 16}, "--max_num_tokens", "less than a block of 32"),
        ({"max_input_len": 5000}, "--max_input_len", "above max_seq_len 4096"),
        ({"opt_num_tokens": 8, "multiple_profiles": "enable"}, "--opt_num_tokens", "cannot be used"),
        (
            {"context_fmha": "disable", "use_paged_context_fmha": "enable"},
            "--use_paged_context_fmha",
            "is switched off",
        ),
        ({"streamingllm": "enable"}, "--streamingllm", "ends in an assertion"),
        ({"user_buffer": "enable"}, "--user_buffer", "needs --reduce_fusion enable"),
        ({"pp_reduce_scatter": "enable"}, "--pp_reduce_scatter", "Mixtral"),
        ({"gemm_swiglu_plugin": "fp8", "use_fused_mlp": "disable"}, "--gemm_swiglu_plugin", "needs --use_fused_mlp"),
        ({"gather_context_logits": True, "max_draft_len": 4}, "--gather_context_logits", "cannot be used"),
        ({"speculative_decoding_mode": "mtp"}, "--speculative_decoding_mode", "is not among the allowed values"),
        ({"speculative_decoding_mode": "eagle"}, "--max_draft_len", "is 0, but eagle needs 1 or more"),
        ({"kv_cache_type": "paged", "paged_kv_cache": "disable"}, "--kv_cache_type", "is given twice"),
        ({"model_cls_file": "a.py"}, "--model_cls_file", "needs --model_cls_name"),
        ({"build_config": "b.json"}, "--build_config", "replaces max_batch_size, max_num_tokens, max_seq_len"),
    ],
)
def test_a_wrong_build_flag_is_refused(more: Flags, path: str, phrase: str) -> None:
    assert phrase in errors({**BUILD, **more})[path]


def test_eagle_has_its_limits() -> None:
    flags = {**BUILD, "speculative_decoding_mode": "eagle", "max_draft_len": 300, "max_batch_size": 600}
    assert set(errors(flags)) == {"--max_draft_len", "--max_batch_size"}


def test_eagle_keeps_paged_context() -> None:
    flags = {**BUILD, "speculative_decoding_mode": "eagle", "max_draft_len": 4, "use_paged_context_fmha": "disable"}
    assert "EAGLE switches paged context on" in errors(flags)["--use_paged_context_fmha"]


def test_a_variable_may_not_override_the_number_of_profiles() -> None:
    found = errors(BUILD, environment={"BUILDER_FORCE_NUM_PROFILES": "2"})
    assert "is 2 in the environment" in found["BUILDER_FORCE_NUM_PROFILES"]
    assert errors({**CONVERT}, tool="convert-qwen", environment={"BUILDER_FORCE_NUM_PROFILES": "2"}) == {}


@pytest.mark.parametrize("weights", ["int8", "awq", "gptq", "w4a8_awq"])
def test_a_fast_build_has_no_int8_or_int4_weights(weights: str) -> None:
    flags = {**BUILD, "fast_build": True}
    assert f"cannot be used with {weights}" in errors(flags, case=ModelCase(weights=weights))["--fast_build"]
    assert errors(flags, case=ModelCase(weights="fp8_tensor")) == {}


@pytest.mark.parametrize(
    ("case", "phrase"),
    [
        (ModelCase(weights="int8", sm=100), "int8 weights"),
        (ModelCase(weights="awq", sm=100), "awq weights"),
        (ModelCase(weights="gptq", sm=103), "gptq weights"),
        (ModelCase(weights="fp8_channel", sm=100), "per-channel FP8 weights"),
        (ModelCase(weights="bf16", kv_dtype="int8", sm=100), "int8 KV"),
    ],
)
def test_what_blackwell_refuses_of_old_quantisation(case: ModelCase, phrase: str) -> None:
    assert f"{phrase} are refused on SM{case.sm}" in errors(BUILD, case=case)["--checkpoint_dir"]
    assert "--checkpoint_dir" not in errors(BUILD, case=replace(case, sm=90))
    assert "--checkpoint_dir" not in errors(BUILD, case=replace(case, sm=120))


@pytest.mark.parametrize("name", ["gemm_swiglu_plugin", "low_latency_gemm_plugin", "low_latency_gemm_swiglu_plugin"])
def test_plugins_for_fp8_need_fp8_weights(name: str) -> None:
    flags = {**BUILD, name: "fp8"}
    assert "for FP8 weights only" in errors(flags, case=ModelCase(weights="bf16"))[f"--{name}"]
    assert errors(flags, case=ModelCase(weights="fp8_tensor")) == {}


@pytest.mark.parametrize(("plugin", "weights", "is_fine"), [("fp8", "fp8_tensor", True), ("nvfp4", "bf16", False)])
def test_a_gemm_plugin_is_that_of_the_weights(plugin: str, weights: str, is_fine: bool) -> None:
    found = errors({**BUILD, "gemm_plugin": plugin}, case=ModelCase(weights=weights))
    assert ("--gemm_plugin" not in found) == is_fine


def test_row_wise_fp8_weights_do_not_keep_fp8_attention() -> None:
    case = ModelCase(weights="fp8_channel", kv_dtype="fp8_e4m3", sm=90)
    found = errors({**BUILD, "use_paged_context_fmha": "enable", "use_fp8_context_fmha": "enable"}, case=case)
    assert "FP8 KV with fp8_channel weights" in found["--use_paged_context_fmha"]
    assert "--use_fp8_context_fmha" in found


@pytest.mark.parametrize(
    ("flags", "case", "path"),
    [
        ({"norm_quant_fusion": "enable"}, ModelCase(architecture="qwen2"), "--norm_quant_fusion"),
        ({"use_fused_mlp": "enable"}, ModelCase(weights="awq"), "--use_fused_mlp"),
        ({"reduce_fusion": "enable"}, ModelCase(architecture="llama", world_size=1), "--reduce_fusion"),
    ],
)
def test_what_the_builder_switches_off_without_harm_is_a_warning(flags: Flags, case: ModelCase, path: str) -> None:
    assert "is switched off" in warnings({**BUILD, **flags}, case=case)[path]


def test_a_missing_length_is_an_error_where_the_default_would_be_millions() -> None:
    flags = {"checkpoint_dir": "ckpt"}
    assert "6.5 million" in errors(flags, case=ModelCase(architecture="deepseek_v2"))["--max_seq_len"]
    assert "--max_seq_len" in warnings(flags)
    assert "--checkpoint_dir" in errors({"max_seq_len": 4096})


PAGED: Flags = {**BUILD, "use_paged_context_fmha": "enable"}


@pytest.mark.parametrize(
    ("case", "phrase"),
    [
        (ModelCase(weights="bf16", kv_dtype="fp8_e4m3", sm=90), "FP8 KV with bf16 weights"),
        (ModelCase(weights="fp8_tensor", kv_dtype="fp8_e4m3", sm=80), "FP8 KV on SM80"),
        (ModelCase(weights="bf16", kv_dtype="int8", sm=80), "INT8 KV"),
    ],
)
def test_what_would_switch_paged_context_off_silently_is_an_error(case: ModelCase, phrase: str) -> None:
    assert phrase in errors(PAGED, case=case)["--use_paged_context_fmha"]
    assert phrase in warnings(BUILD, case=case)["--use_paged_context_fmha"]
    assert "--use_paged_context_fmha" not in errors({**BUILD, "use_paged_context_fmha": "disable"}, case=case)


def test_fp8_weights_with_fp8_cache_keep_paged_context() -> None:
    case = ModelCase(architecture="deepseek_moe", weights="fp8_tensor", kv_dtype="fp8_e4m3", sm=90)
    assert validate_build_flags({**PAGED, "use_fp8_context_fmha": "enable"}, "1.2.1", case=case) == []


@pytest.mark.parametrize(
    "case",
    [
        ModelCase(weights="bf16", kv_dtype="bf16", sm=90),
        ModelCase(weights="fp8_tensor", kv_dtype="fp8_e4m3", sm=86),
        ModelCase(weights="fp8_tensor", kv_dtype="bf16", sm=90),
    ],
)
def test_fp8_context_attention_is_refused_where_the_builder_drops_it(case: ModelCase) -> None:
    assert "--use_fp8_context_fmha" in errors({**BUILD, "use_fp8_context_fmha": "enable"}, case=case)


def test_plugins_that_blackwell_refuses() -> None:
    flags = {**BUILD, "low_latency_gemm_plugin": "fp8", "fp8_rowwise_gemm_plugin": "auto"}
    case = ModelCase(weights="fp8_tensor", sm=100)
    assert set(errors(flags, case=case)) == {"--low_latency_gemm_plugin", "--fp8_rowwise_gemm_plugin"}
    assert errors(flags, case=ModelCase(weights="fp8_tensor", sm=90)) == {}


def test_the_engine_path_of_v2_knows_bf16_only() -> None:
    case = ModelCase(architecture="deepseek_v2", weights="bf16", kv_dtype="fp8_e4m3", sm=90)
    assert "BF16 only" in errors(BUILD, case=case)["--checkpoint_dir"]


@pytest.mark.parametrize(
    ("flags", "path", "phrase"),
    [
        (
            {"tp_size": 8, "moe_tp_size": 4, "moe_ep_size": 4},
            "--moe_tp_size",
            "4 times moe_ep_size 4 is 16, not tp_size 8",
        ),
        ({"tp_size": 8, "moe_ep_size": 3}, "--moe_ep_size", "does not divide tp_size 8"),
        ({"embedding_sharding_dim": 2}, "--embedding_sharding_dim", "one of 0, 1"),
        ({"use_weight_only": True}, "--use_weight_only", "is unknown to convert-deepseek-v1"),
    ],
)
def test_a_wrong_conversion_flag_is_refused(flags: Flags, path: str, phrase: str) -> None:
    assert phrase in errors({**CONVERT, **flags}, tool="convert-deepseek-v1")[path]


def test_what_a_script_parses_and_never_reads_is_said_to_have_no_effect() -> None:
    flags = {**CONVERT, "moe_top_k": 6, "save_config_only": True}
    found = warnings(flags, tool="convert-deepseek-v1")
    assert all("never read" in found[path] for path in ("--moe_top_k", "--save_config_only"))


def test_a_flag_that_needs_a_variable_is_said_to() -> None:
    flags = {**CONVERT, "dtype": "bfloat16", "load_model_on_cpu": True}
    found = warnings(flags, tool="convert-deepseek-v2")
    assert "TRTLLM_DISABLE_UNIFIED_CONVERTER" in found["--load_model_on_cpu"]
    environment = {"TRTLLM_DISABLE_UNIFIED_CONVERTER": "1"}
    assert validate_build_flags(flags, "1.2.1", tool="convert-deepseek-v2", environment=environment) == []


@pytest.mark.parametrize("dtype", [None, "float16", "float32"])
def test_v2_is_converted_in_bf16_only(dtype: str | None) -> None:
    flags = {**CONVERT, **({"dtype": dtype} if dtype else {})}
    assert "overflows" in errors(flags, tool="convert-deepseek-v2")["--dtype"]


@pytest.mark.parametrize("tool", ["convert-deepseek-v1", "convert-deepseek-v2", "convert-qwen"])
def test_a_required_flag_is_asked_for(tool: str) -> None:
    assert "is missing" in errors({"dtype": "bfloat16"}, tool=tool)["--model_dir"]


def test_one_source_of_weights() -> None:
    assert "exactly one" in errors({}, tool="quantize")["--model_dir"]
    assert "exactly one" in errors({"model_dir": "a", "meta_ckpt_dir": "b"}, tool="convert-llama")["--model_dir"]


@pytest.mark.parametrize(
    ("qformat", "sm", "is_refused"),
    [("fp8", 80, True), ("fp8", 89, False), ("nvfp4", 90, True), ("nvfp4", 100, False), ("int4_awq", 80, False)],
)
def test_a_quantisation_needs_its_gpu(qformat: str, sm: int, is_refused: bool) -> None:
    case = ModelCase(architecture="qwen2", sm=sm)
    assert bool(errors({"model_dir": "hf", "qformat": qformat}, tool="quantize", case=case)) == is_refused


def test_quantize_knows_no_class_of_v2_and_later() -> None:
    case = ModelCase(architecture="deepseek_v2", sm=90)
    assert "exports nothing" in errors({"model_dir": "hf", "qformat": "fp8"}, tool="quantize", case=case)["--model_dir"]
