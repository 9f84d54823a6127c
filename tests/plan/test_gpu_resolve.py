"""Resolution for GPUs: who wins, where each value came from, presets, and what is wrong in itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpu_plans import CONFIGS, deployment, messages, model, plan

from seekserve.errors import CheckpointError, ConfigError
from seekserve.plan.ask import PlanRequest, make_plan
from seekserve.plan.gpu_resolve import resolve_gpu
from seekserve.plan.inputs import FIELDS, Inputs, environment_inputs, file_inputs, flag_inputs
from seekserve.plan.presets import preset_names, preset_reasons, preset_values
from seekserve.plan.target import ALL_FIELDS, shape_disagreements

V3 = str(CONFIGS / "deepseek-v3.json")
FILE = Path("/etc/seekserve.yaml")


def flags(**values: Any) -> Inputs:
    return flag_inputs(values, ALL_FIELDS)


def asked(environ: dict[str, str] | None = None, file: Inputs | None = None, **request: Any) -> Any:
    values = {name: request.pop(name) for name in list(request) if name in {spec.name for spec in ALL_FIELDS}}
    made = PlanRequest(checkpoint=V3, inputs=flags(**values), **request)
    return make_plan(made, file or Inputs(), environ or {})


def test_every_value_of_the_plan_has_a_source() -> None:
    sources = plan(gpus=8).sources
    assert set(sources) == {spec.plan_key for spec in ALL_FIELDS}
    assert sources["target.gpu"] == "flag --gpu"
    assert sources["parallel.tp"] == "derived: best of the legal shapes"


def test_flag_beats_environment_beats_file_beats_preset_beats_default() -> None:
    environ = {"SEEKSERVE_MAX_BATCH_SIZE": "32", "SEEKSERVE_GPU": "h200", "SEEKSERVE_ATTENTION_DP": "no"}
    file = file_inputs({"max_batch_size": 64, "block_tokens": 64, "isl": 3000, "osl": 500}, FILE, ALL_FIELDS)
    made = asked(environ, file, max_batch_size=16, preset="latency").plan
    assert made.limits.max_batch_size == 16
    assert made.sources["limits.max_batch_size"] == "flag --max-batch-size"
    assert made.sources["target.gpu"] == "environment SEEKSERVE_GPU"
    assert made.sources["workload.isl_tokens"] == f"file {FILE}"
    assert made.sources["limits.max_seq_len_tokens"] == "preset latency"
    assert made.sources["parallel.attention_dp"] == "environment SEEKSERVE_ATTENTION_DP"
    assert made.sources["kv_cache.policy"] == "default"


def test_sources_that_disagree_about_the_shape_are_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        asked({"SEEKSERVE_TP": "4"}, gpu="h200", tp=8)
    assert "tp is 8 (flag --tp) and 4 (environment SEEKSERVE_TP)" in str(caught.value)
    agreeing, _ = environment_inputs({"SEEKSERVE_TP": "8"}, ALL_FIELDS)
    assert shape_disagreements([flags(tp=8), agreeing]) == []


def test_wrong_values_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        asked(
            {"SEEKSERVE_KV_FRACTION": "much"},
            gpu="h200",
            gpus=9,
            nodes=2,
            kv_fraction=1.5,
            host_cache_gib=-5.0,
            trtllm_version="new",
            tp=0,
        )
    for part in (
        "SEEKSERVE_KV_FRACTION: expected a number, got 'much'",
        "9 GPUs on 2 nodes",
        "kv_cache.fraction must be from 0.01 to 1.0, got 1.5",
        "kv_cache.host_cache_gib must be at least 0, got -5.0",
        "'new' is no TensorRT-LLM version",
        "parallel.tp must be at least 1, got 0",
    ):
        assert part in str(caught.value)


def test_without_a_gpu_the_error_says_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match="--gpu h200_sxm"):
        resolve_gpu(Inputs(), model("deepseek-v3"))


def test_engines_on_the_cpu_have_no_gpu_plan() -> None:
    with pytest.raises(ConfigError, match="--dry-run"):
        asked(gpu="h200", engine="reference")


def test_the_environment_of_the_reference_engine_does_not_read_gpu_variables() -> None:
    inputs, problems = environment_inputs({"SEEKSERVE_TP": "eight", "SEEKSERVE_MAX_BATCH_SIZE": "2"}, FIELDS)
    assert problems == []
    assert inputs == environment_inputs({"SEEKSERVE_MAX_BATCH_SIZE": "2"})[0]


def test_the_fraction_is_lowered_until_graphs_fit_and_says_so() -> None:
    made = plan(gpu="h100", gpus=16)
    assert made.sources["kv_cache.fraction"].startswith("derived: default lowered")
    assert made.deployment is not None
    assert made.deployment.case.fraction < 0.9
    assert made.deployment.case.worst.left_over_bytes >= 0


def test_a_fraction_that_somebody_gave_is_not_changed_but_refused() -> None:
    text = messages(gpu="h100", gpus=16, tp=8, pp=2, ep=8, attention_dp=False, kv_fraction=0.98)["memory-overcommitted"]
    assert "CUDA graphs need 3.7 GiB more" in text
    assert "--kv-fraction 0.8" in text


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_valid_and_every_value_has_a_reason(name: str) -> None:
    values, reasons = preset_values(name), preset_reasons(name)
    assert reasons
    assert all(getattr(values, field).source_text == f"preset {name}" for field in reasons)
    made = asked(gpu="b200", preset=name).plan
    assert made.deployment is not None


def test_the_latency_and_throughput_presets_are_the_field_rules() -> None:
    latency, throughput = (asked(gpu="h200", preset=name).plan for name in ("latency", "throughput"))
    assert (latency.limits.max_batch_size, latency.limits.max_seq_len_tokens, latency.kv.dtype) == (8, 4096, "bf16")
    assert (throughput.limits.max_batch_size, throughput.kv.dtype) == (16, "fp8_e4m3")
    assert not latency.deployment.shape.attention_dp
    assert throughput.deployment.shape.attention_dp


def test_the_vllm_guide_is_mapped_to_tensorrt_llm_names() -> None:
    request = PlanRequest(
        checkpoint=str(CONFIGS / "r1-distill-llama-8b.json"), inputs=flags(gpu="h100", gpus=2), preset="guide-vllm"
    )
    made = make_plan(request, Inputs(), {}).plan
    assert made.deployment is not None
    assert made.deployment.fits
    assert (made.tp, made.kv.block_tokens, made.limits.max_num_tokens, made.limits.max_seq_len_tokens) == (
        2,
        16,
        8192,
        8192,
    )
    assert made.deployment.cuda_graph_batch_sizes == ()
    assert made.deployment.capacity_policy == "MAX_UTILIZATION"


def test_the_vllm_guide_s_blocks_are_refused_where_the_kernel_takes_others() -> None:
    found = {each.rule: each for each in asked(gpu="h200", gpus=8, preset="guide-vllm").plan.deployment.findings}
    assert "blocks of 16 tokens (preset guide-vllm)" in found["block-size"].message
    assert found["block-size"].hint == "--block-tokens 64"


def test_host_memory_is_preferred_to_unified_memory() -> None:
    found = messages(gpus=8, host_cache_gib=256.0, kv_uvm=True)
    assert "more tokens for reuse (host_cache_size)" in found["host-cache"]
    assert found["kv-uvm"].startswith("warning: ")
    assert "--host-cache" in found["kv-uvm"]


def test_v4_reuses_no_blocks() -> None:
    assert not deployment("deepseek-v4-flash", "b200", gpus=8).block_reuse
    assert deployment(gpus=8).block_reuse


@pytest.mark.parametrize("name", ["deepseek-moe-16b", "deepseek-v2-lite"])
def test_families_of_the_engine_workflow_get_it_by_default(name: str) -> None:
    made = plan(name, "h100", gpus=1)
    assert made.engine == "trtllm-engine"
    assert made.deployment is not None
    assert made.deployment.fits


def test_an_unknown_model_and_a_missing_file_are_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "gpt9", "num_attention_heads": 1, "hidden_size": 8, "vocab_size": 8, "num_hidden_layers": 1}',
        encoding="utf-8",
    )
    for path in (tmp_path / "config.json", tmp_path):
        with pytest.raises(CheckpointError, match="unknown"):
            make_plan(PlanRequest(checkpoint=str(path), inputs=flags(gpu="h200")), Inputs(), {})
    with pytest.raises(CheckpointError, match="no such folder"):
        make_plan(PlanRequest(checkpoint=str(tmp_path / "none"), inputs=flags(gpu="h200")), Inputs(), {})


def test_a_broken_checkpoint_is_refused_before_planning(tmp_path: Path) -> None:
    from tests.checkpoint.toy import v3_toy

    toy = v3_toy()
    del toy.tensors["model.layers.1.mlp.experts.2.gate_proj.weight_scale_inv"]
    folder = toy.write(tmp_path / "broken")
    with pytest.raises(CheckpointError, match="scale-missing"):
        make_plan(PlanRequest(checkpoint=str(folder), inputs=flags(gpu="h200", gpus=1)), Inputs(), {})


def test_nvidia_s_reexport_is_planned_by_the_file_beside_config(tmp_path: Path) -> None:
    import json

    raw = json.loads((CONFIGS / "deepseek-v3.json").read_text(encoding="utf-8"))
    del raw["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    quantization = {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.*.self_attn*"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}), encoding="utf-8")
    request = PlanRequest(checkpoint=str(tmp_path), inputs=flags(gpu="b200", gpus=4))
    made = make_plan(request, Inputs(), {}).plan
    assert made.weights_dtype == "nvfp4"
    assert made.deployment is not None
    assert made.deployment.fits
    assert 380e9 < made.weights_bytes < 420e9


@pytest.mark.parametrize(("gpu", "runs"), [("h100", True), ("l40s", True), ("b200", False), ("a100", False)])
def test_an_awq_export_with_fp8_activations_is_planned_for_ada_and_hopper(tmp_path: Path, gpu: str, runs: bool) -> None:
    import json

    (tmp_path / "config.json").write_bytes((CONFIGS / "r1-distill-qwen-7b.json").read_bytes())
    quantization = {"quant_algo": "W4A8_AWQ", "group_size": 128, "exclude_modules": ["lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}), encoding="utf-8")
    made = make_plan(PlanRequest(checkpoint=str(tmp_path), inputs=flags(gpu=gpu, gpus=1)), Inputs(), {}).plan
    assert made.weights_dtype == "w4a8_awq"
    assert made.deployment is not None
    assert made.deployment.fits == runs
    assert 4.9e9 < made.weights_bytes < 6.5e9


def test_an_engine_that_may_pause_is_told_as_such_and_warned_of_when_the_cache_is_too_small_for_what_runs() -> None:
    plain = asked(gpu="h200", gpus=8)
    assert not plain.plan.kv.may_pause
    asks = {
        "gpu": "h200",
        "gpus": 8,
        "capacity_policy": "MAX_UTILIZATION",
        "isl": 4000,
        "osl": 8000,
        "attention_dp": False,
    }
    roomy, full = asked(**asks, max_batch_size=16), asked(**asks, max_batch_size=2000)
    for made, severity in ((roomy, "note"), (full, "warning")):
        assert made.plan.kv.may_pause
        (found,) = [each for each in made.plan.deployment.findings if each.rule == "may-pause"]
        assert found.severity == severity
    assert "2000 requests of ISL 4000 / OSL 8000 would hold about 16,000,000 tokens" in found.message
