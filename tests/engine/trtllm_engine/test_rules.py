"""What cannot be an engine is refused before anything starts, with the rule or the field and what to do instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engine.trtllm_engine.machine import A100, Case, Make, dry, flags_of, machine

from seekserve.errors import ConfigError, ConflictError, InputError, SeekserveError
from seekserve.plan.model import read_model
from seekserve.plan.quantised import model_in

# The user's own flags


@pytest.mark.parametrize(
    ("flags", "phrase"),
    [
        ({"max_seq_len": "4096"}, "max_seq_len=4096: the plan says 8192; change it with --max-seq-len"),
        ({"--max-batch-size": "4"}, "max_batch_size=4: the plan says 256; change it with --max-batch-size"),
        ({"max_num_tokens": "4096"}, "change it with --max-num-tokens"),
        ({"tokens_per_block": "64"}, "change it with --block-tokens"),
        ({"max_beam_width": "4"}, "change it with --max-beam-width"),
        ({"workers": "4"}, "change it with --workers"),
        ({"checkpoint_dir": "/x"}, "is set by the build"),
        ({"output_dir": "/x"}, "is set by the build"),
        ({"build_config": "b.json"}, "it would replace every flag"),
        ({"dry_run": "true"}, "build-engine --dry-run"),
        ({"kv_cache_type": "continuous"}, "only a paged cache can be served"),
        ({"paged_kv_cache": "disable"}, "only a paged cache"),
        ({"remove_input_padding": "disable"}, "in-flight batching needs packed input"),
        ({"use_paged_context_fmha": "disable"}, "the plan wants KV reuse and chunked prefill"),
    ],
)
def test_a_flag_never_contradicts_the_plan(v2_lite: Case, flags: dict[str, str], phrase: str) -> None:
    with pytest.raises(ConflictError, match=phrase):
        dry(v2_lite, build_flags=flags)


def test_saying_what_the_plan_says_is_fine(v2_lite: Case) -> None:
    same = {"max_seq_len": "8192", "kv_cache_type": "PAGED", "use_paged_context_fmha": "enable"}
    assert flags_of(dry(v2_lite, build_flags=same)) == flags_of(dry(v2_lite))


@pytest.mark.parametrize(
    ("flags", "rule", "phrase"),
    [
        ({"max_batchsize": "4"}, "argument-unknown", "did you mean --max_batch_size"),
        ({"auto_parallel": "2"}, "argument-removed", "since late 2025"),
        ({"context_fmha": "disable"}, "context-fmha", "is switched off by --context_fmha disable"),
        ({"use_fp8_context_fmha": "enable"}, "fp8-context-fmha", "these are bf16"),
        ({"streamingllm": "enable"}, "plugin", "ends in an assertion"),
        ({"pp_reduce_scatter": "enable"}, "plugin", "Mixtral"),
        ({"user_buffer": "enable"}, "plugin", "needs --reduce_fusion"),
        ({"low_latency_gemm_plugin": "fp8"}, "plugin", "for FP8 weights only"),
        ({"gemm_plugin": "fp8"}, "plugin", "the weights are bf16"),
        ({"gemm_plugin": "fp16"}, "argument-choice", "is not among the allowed values"),
        ({"speculative_decoding_mode": "eagle", "max_draft_len": "300"}, "speculation", "EAGLE takes 256 at most"),
        ({"speculative_decoding_mode": "eagle"}, "speculation", "needs 1 or more"),
        ({"gather_context_logits": "true", "max_draft_len": "2"}, "speculation", "cannot be used"),
        ({"multiple_profiles": "enable", "opt_num_tokens": "8"}, "profiles", "cannot be used"),
        ({"max_input_len": "9000"}, "token-limit", "above max_seq_len 8192"),
    ],
)
def test_a_combination_that_the_builder_refuses_names_its_rule(
    v2_lite: Case, flags: dict[str, str], rule: str, phrase: str
) -> None:
    with pytest.raises(ConflictError) as found:
        dry(v2_lite, build_flags=flags)
    assert f"[{rule}]" in str(found.value)
    assert phrase in str(found.value)


def test_eagle_takes_512_requests_at_most(make: Make) -> None:
    case = make("deepseek-v2-lite", max_batch_size=600)
    with pytest.raises(ConflictError, match="EAGLE takes 512 at most"):
        dry(case, build_flags={"speculative_decoding_mode": "eagle", "max_draft_len": "2"})


@pytest.mark.parametrize("mode", ["eagle", "medusa", "explicit_draft_tokens"])
def test_a_mode_with_heads_of_its_own_is_refused(v2_lite: Case, mode: str) -> None:
    with pytest.raises(ConflictError, match="needs draft heads in the checkpoint"):
        dry(v2_lite, build_flags={"speculative_decoding_mode": mode, "max_draft_len": "2"})


def test_all_that_is_wrong_is_one_report(v2_lite: Case) -> None:
    with pytest.raises(ConflictError, match="2 problems"):
        dry(v2_lite, build_flags={"streamingllm": "enable", "user_buffer": "enable"})


@pytest.mark.parametrize(
    ("flags", "phrase"),
    [({"opt_num_tokens": "many"}, "a whole number is due"), ({"fast_build": "maybe"}, "it takes no value")],
)
def test_a_flag_of_another_type_is_refused(v2_lite: Case, flags: dict[str, str], phrase: str) -> None:
    with pytest.raises(ConfigError, match=phrase):
        dry(v2_lite, build_flags=flags)


def test_a_variable_that_overrides_the_profiles_is_refused(v2_lite: Case) -> None:
    with pytest.raises(ConflictError, match=r"\[profiles\] BUILDER_FORCE_NUM_PROFILES: is 3 in the environment"):
        dry(v2_lite, host=machine({"BUILDER_FORCE_NUM_PROFILES": "3"}))


def test_profiles_and_switches_are_passed_on(v2_lite: Case) -> None:
    wishes = {"multiple_profiles": "enable", "fast_build": "true", "strip_plan": "false", "gemm_plugin": "auto"}
    outcome = dry(v2_lite, build_flags=wishes)
    argv = outcome.steps[1].argv
    assert "--fast_build" in argv
    assert "--strip_plan" not in argv
    assert flags_of(outcome)["--multiple_profiles"] == "enable"
    assert flags_of(outcome)["--gemm_plugin"] == "auto"
    assert outcome.bundle.sources["engine.gemm_plugin"] == "flag --build-flag gemm_plugin"


def test_drafted_tokens_have_room_beside_the_limits(make: Make) -> None:
    case = make("r1-distill-qwen-7b", kv_dtype="bf16", max_batch_size=8)
    drafting = {"speculative_decoding_mode": "draft_tokens_external", "max_draft_len": "4"}
    assert case.build(build_flags=drafting).bundle.limits.max_seq_len_tokens == 8192


# Precision and cache


def test_an_fp8_cache_without_fp8_weights_loses_paged_context(make: Make) -> None:
    case = make("deepseek-moe-16b", kv_dtype="fp8_e4m3")
    with pytest.raises(ConflictError) as found:
        dry(case)
    assert "[paged-context]" in str(found.value)
    assert "no KV reuse and no chunked context" in str(found.value)
    assert "--kv-dtype bf16, or weights in FP8 too" in str(found.value)


def test_without_reuse_and_chunks_that_cache_can_be_had(make: Make) -> None:
    case = make("r1-distill-qwen-7b", kv_dtype="fp8_e4m3", chunked_prefill=False)
    outcome = case.build(args={"kv_cache_config": {"enable_block_reuse": False}})
    assert flags_of(outcome, 0)["--qformat"] == "full_prec"
    assert flags_of(outcome)["--use_paged_context_fmha"] == "disable"
    assert yaml.safe_load(outcome.texts["llm_args.yaml"])["kv_cache_config"]["enable_block_reuse"] is False


def test_quantising_to_fp8_needs_its_gpu(make: Make) -> None:
    case = make("r1-distill-qwen-7b", A100)
    with pytest.raises(ConflictError, match=r"\[quantise\] --qformat: fp8 needs SM89 or later, the GPU is SM80"):
        dry(replace(case, plan=replace(case.plan, weights_dtype="fp8_tensor")))


def test_fp8_attention_only_with_fp8_weights_and_fp8_cache(make: Make) -> None:
    for kv_dtype, word in (("bf16", "disable"), ("fp8_e4m3", "enable")):
        case = make("r1-distill-llama-70b", weights="fp8_tensor", kv_dtype=kv_dtype, gpus=2)
        outcome = dry(case)
        assert flags_of(outcome)["--use_fp8_context_fmha"] == word
        assert ("--kv_cache_dtype" in flags_of(outcome, 0)) == (kv_dtype == "fp8_e4m3")


def test_int8_weights_are_made_by_the_conversion(make: Make) -> None:
    outcome = make("r1-distill-qwen-7b", A100, weights="int8").build(
        host=machine({"TRTLLM_DOUBLE_SM": "80"}, devices=lambda: None)
    )
    assert flags_of(outcome, 0)["--weight_only_precision"] == "int8"
    assert outcome.bundle.weights_dtype == "int8"


@pytest.mark.parametrize(
    ("name", "weights", "phrase"),
    [
        ("deepseek-v2-lite", "fp8_tensor", "no script of TensorRT-LLM makes a DeepSeek-V2-Lite engine in fp8_tensor"),
        ("deepseek-moe-16b", "awq", "it can be bf16, fp16, fp8_tensor"),
    ],
)
def test_a_precision_that_no_script_makes_is_refused(make: Make, name: str, weights: str, phrase: str) -> None:
    case = make(name, kv_dtype="bf16")
    with pytest.raises(ConflictError) as found:
        dry(replace(case, plan=replace(case.plan, weights_dtype=weights)))
    assert phrase in str(found.value)


def test_quantised_weights_are_not_quantised_again(checkpoints: Callable[[str], Path]) -> None:
    model = read_model(str(checkpoints("deepseek-v2-lite")))
    with pytest.raises(ConflictError, match="cannot be made of the checkpoint's fp8_block"):
        model_in(replace(model, precision="fp8_block"), "fp8_tensor")
    assert model_in(model, "bf16") is model


def test_experts_cannot_be_divided_by_quantize(make: Make) -> None:
    case = make("deepseek-moe-16b", weights="fp8_tensor", gpus=2, tp=2, ep=2)
    with pytest.raises(ConflictError, match="no option for expert parallelism, the plan has EP 2"):
        dry(case)


def test_experts_are_divided_by_the_conversion(make: Make) -> None:
    outcome = make("deepseek-moe-16b", kv_dtype="bf16", gpus=4, tp=4, ep=2).build()
    flags = flags_of(outcome, 0)
    assert (flags["--tp_size"], flags["--moe_tp_size"], flags["--moe_ep_size"]) == ("4", "2", "2")
    assert flags_of(outcome)["--workers"] == "4"


def test_every_rank_has_its_engine(make: Make) -> None:
    case = make("r1-distill-llama-70b", kv_dtype="bf16", gpus=4, tp=2, pp=2)
    bundle = case.build().bundle
    assert [f"engine/rank{rank}.engine" in bundle.files for rank in range(5)] == [True] * 4 + [False]
    assert (bundle.parallel.tp, bundle.parallel.pp, bundle.parallel.world_size) == (2, 2, 4)


# Calibration


def test_calibration_reads_a_folder_where_the_hub_cannot_be_reached(make: Make, tmp_path: Path) -> None:
    case = make("deepseek-moe-16b", weights="fp8_tensor")
    folder = tmp_path / "cnn_dailymail"
    folder.mkdir()
    outcome = dry(case, calibration_data=str(folder))
    assert flags_of(outcome, 0)["--calib_dataset"] == str(folder)
    assert any(f"512 samples of {folder}" in need for need in outcome.needs)


def test_a_data_set_that_quantize_does_not_know_is_refused(make: Make) -> None:
    case = make("deepseek-moe-16b", weights="fp8_tensor")
    for given in ("wikitext", "/nowhere/cnn_dailymail"):
        with pytest.raises(InputError, match="is no folder here"):
            dry(case, calibration_data=given)


def test_calibration_data_without_calibration_is_refused(v2_lite: Case) -> None:
    with pytest.raises(ConflictError, match="nothing is calibrated"):
        dry(v2_lite, calibration_data="cnn_dailymail")


# What a config.json may say


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"rope_scaling": None}, "rope_scaling is not there"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 40}}, "reads type"),
        ({"topk_method": "noaux_tc"}, "topk_method is noaux_tc"),
        ({"routed_scaling_factor": 2.5}, "2.5 with topk_method greedy"),
        ({"first_k_dense_replace": 3}, "exactly the first layer dense"),
    ],
)
def test_a_v2_config_that_the_classes_of_v2_cannot_do(
    v2_lite: Case, tmp_path: Path, change: dict[str, Any], phrase: str
) -> None:
    folder = tmp_path / "changed"
    folder.mkdir()
    config = json.loads((v2_lite.source.folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    case = replace(v2_lite, source=replace(v2_lite.source, folder=folder))
    with pytest.raises(ConflictError, match=phrase):
        dry(case)


def test_v2_outside_hopper_is_unverified(make: Make) -> None:
    outcome = dry(make("deepseek-v2-lite", A100))
    assert any("unverified on SM80" in text for text in outcome.warnings)
    assert flags_of(outcome)["--use_paged_context_fmha"] == "disable"  # no MLA kernels for reuse or chunks there


def test_reordered_gptq_weights_are_refused(make: Make, tmp_path: Path) -> None:
    case = make("r1-distill-qwen-7b", kv_dtype="bf16")
    config = json.loads((case.source.folder / "config.json").read_text())
    quantization = {"quant_method": "gptq", "bits": 4, "desc_act": True}
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    facts = replace(case.source.facts, weights_dtype="gptq")
    source = replace(case.source, folder=tmp_path, facts=facts)
    with pytest.raises(ConflictError, match="desc_act true"):
        dry(replace(case, source=source, plan=replace(case.plan, weights_dtype="gptq")))


# Models and options without an engine


@pytest.mark.parametrize(
    ("architecture", "phrase"),
    [
        ("deepseek_v3", "DeepSeek-V3 has no TensorRT engine path in any release.*use --engine trtllm-pytorch"),
        ("deepseek_v4", "DeepSeek-V4 has no TensorRT engine path in any release"),
    ],
)
def test_a_model_without_engine_path_is_refused_with_the_alternative(
    v2_lite: Case, architecture: str, phrase: str
) -> None:
    facts = replace(v2_lite.source.facts, architecture=architecture)
    with pytest.raises(ConflictError, match=phrase):
        dry(replace(v2_lite, source=replace(v2_lite.source, facts=facts)))


def test_no_engine_comes_from_1_4(make: Make) -> None:
    with pytest.raises(SeekserveError, match=r"1\.3\.0rc20"):
        dry(make("deepseek-v2-lite", trtllm_version="1.4.0rc4"))


def test_the_last_candidate_is_unverified(make: Make) -> None:
    outcome = dry(make("deepseek-v2-lite", trtllm_version="1.3.0rc20"))
    assert any("unverified for this version (1.3.0rc20)" in text for text in outcome.warnings)


@pytest.mark.parametrize(
    ("more", "phrase"),
    [({"link_weights": True}, "--weights link"), ({"profile": "latency"}, "--profile latency")],
)
def test_no_option_is_passed_over(v2_lite: Case, more: dict[str, Any], phrase: str) -> None:
    with pytest.raises(ConflictError, match=phrase):
        dry(v2_lite, **more)
