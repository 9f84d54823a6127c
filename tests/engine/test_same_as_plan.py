"""`plan` and `build-engine` say the same for the same inputs: limits, cache, shape, weights, or the same refusal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seekserve.engine.build import BuildRequest, build
from seekserve.engine.outcome import TrtllmWish
from seekserve.engine.pytorch_args import settled_args
from seekserve.engine.source import read_source
from seekserve.engine.trtllm_flags import TrtllmFlags
from seekserve.errors import ConflictError, SeekserveError
from seekserve.plan.ask import PlanRequest, make_plan
from seekserve.plan.ask_gpu import GpuRequest, plan_for_gpus
from seekserve.plan.gpu_resolve import require_fit
from seekserve.plan.inputs import Inputs, flag_inputs
from seekserve.plan.model import model_of, read_model
from seekserve.plan.target import ALL_FIELDS
from seekserve.settings import Settings

Make = Callable[[str], Path]
CONFIGS = Path(__file__).parents[1] / "checkpoint" / "configs"
OWN = {"profile", "preset", "quantize"}
# Whole checkpoints, from the command to the texts of the bundle.
RELEASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("deepseek-v3", {"gpu": "h200", "gpus": 8, "profile": "throughput"}),
    ("deepseek-v4-flash", {"gpu": "b200", "gpus": 8, "mtp": 1, "max_batch_size": 64}),
    ("deepseek-v2-lite", {"gpu": "h100", "gpus": 1}),
    ("deepseek-v2-lite", {"gpu": "h100", "max_batch_size": 1, "max_seq_len_tokens": 2048, "max_num_tokens": 8192}),
    ("deepseek-moe-16b", {"gpu": "a100", "gpus": 1, "max_seq_len_tokens": 2048}),
    ("r1-distill-llama-70b", {"gpu": "h200", "gpus": 2, "prefill_chunk_tokens": 256, "kv_capacity_tokens": 100_000}),
    ("r1-distill-llama-70b", {"gpu": "h100", "gpus": 4, "engine": "trtllm-engine", "quantize": "fp8_tensor"}),
    ("r1-distill-llama-70b", {"gpu": "h100", "gpus": 2, "engine": "trtllm-engine", "quantize": "w4a8_awq"}),
    ("r1-distill-qwen-7b", {"gpu": "l40s", "gpus": 1, "engine": "trtllm-engine", "quantize": "w4a8_awq"}),
    ("r1-distill-qwen-7b", {"gpu": "h100", "gpus": 1, "preset": "latency", "block_tokens": 64}),
    ("r1-distill-qwen-7b", {"gpu": "l40s", "gpus": 1, "chunked_prefill": False}),
)
REFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("r1-distill-llama-70b", {"gpu": "h100", "gpus": 1}),
    ("r1-distill-qwen-7b", {"gpu": "h100", "gpus": 2, "tp": 2, "ep": 2}),
    ("r1-distill-qwen-7b", {"gpu": "h100", "prefill_chunk_tokens": 256, "max_num_tokens": 8192}),
    ("r1-distill-qwen-7b", {"gpu": "h100", "profile": "latency"}),
    ("r1-distill-qwen-7b", {"gpu": "h100", "quantize": "awq"}),
    ("r1-distill-qwen-7b", {"gpu": "b200", "engine": "trtllm-engine", "quantize": "w4a8_awq"}),
    ("deepseek-v2-lite", {"gpu": "h100", "engine": "trtllm-pytorch"}),
    ("deepseek-v2-lite", {"gpu": "h100", "trtllm_version": "9.9"}),
)
# Bare configs, to the arguments of tensorrt_llm.LLM.
ON_GPUS: tuple[dict[str, Any], ...] = (
    {"gpu": "h200", "gpus": 8},
    {"gpu": "h100", "gpus": 16, "kv_fraction": 0.7},
    {"gpu": "b200", "gpus": 8, "mtp": 0, "max_num_tokens": 4096},
    {"gpu": "a100", "gpus": 8, "chunked_prefill": False},
)


def _inputs(flags: dict[str, Any]) -> Inputs:
    return flag_inputs({name: value for name, value in flags.items() if name not in OWN}, ALL_FIELDS)


def _own(flags: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if name in OWN}


def planned(folder: Path, flags: dict[str, Any]) -> dict[str, Any] | str:
    """JSON of the plan, or the refusal's text."""
    try:
        answer = make_plan(PlanRequest(checkpoint=str(folder), inputs=_inputs(flags), **_own(flags)), Inputs(), {})
        answer.require_fit()
    except SeekserveError as error:
        return str(error)
    made: dict[str, Any] = json.loads(json.dumps(answer.to_json()))
    return made


def built(folder: Path, flags: dict[str, Any], out: Path) -> dict[str, Any] | str:
    """JSON of the dry run, or the refusal's text."""
    request = BuildRequest(
        checkpoint=str(folder), out=out, inputs=_inputs(flags), trtllm=TrtllmFlags(**_own(flags)), dry_run=True
    )
    try:
        report = build(request, Settings(), {}, host_memory_bytes=None)
    except SeekserveError as error:
        return str(error)
    made: dict[str, Any] = json.loads(report.json_text())
    return made


@pytest.mark.parametrize(("name", "flags"), RELEASES)
def test_the_plan_and_the_dry_run_agree(release: Make, tmp_path: Path, name: str, flags: dict[str, Any]) -> None:
    plan, bundle = planned(release(name), flags), built(release(name), flags, tmp_path / "bundle")
    assert isinstance(plan, dict), plan
    assert isinstance(bundle, dict), bundle
    shape = plan["shape"]
    assert bundle["limits"] == {key: plan["limits"][key] for key in bundle["limits"]}
    assert bundle["kv_cache"] == {key: plan["kv_cache"][key] for key in bundle["kv_cache"]}
    for size in ("tp", "pp", "ep", "attention_dp"):
        assert bundle["parallel"][size] == shape[size]
    assert (bundle["engine"], bundle["engine_version"]) == (plan["engine"], plan["trtllm_version"])
    assert bundle["weights"]["dtype"] == plan["weights"]["precision"]
    assert bundle["weights"]["bytes"] == plan["weights"]["bytes"]
    assert f"free_gpu_memory_fraction: {plan['kv_cache']['fraction']}\n" in bundle["texts"]["llm_args.yaml"]


@pytest.mark.parametrize(("name", "flags"), REFUSED)
def test_the_plan_and_the_build_refuse_alike(release: Make, tmp_path: Path, name: str, flags: dict[str, Any]) -> None:
    plan = planned(release(name), flags)
    assert isinstance(plan, str)
    assert built(release(name), flags, tmp_path / "bundle") == plan


def test_a_build_plans_with_the_checkpoint_that_it_has_read(release: Make) -> None:
    folder = release("r1-distill-qwen-7b")
    assert model_of(read_source(str(folder)).checkpoint) == read_model(str(folder))


def test_the_tools_of_an_engine_get_the_environment_that_the_build_was_given(release: Make, tmp_path: Path) -> None:
    flags = {"gpu": "h100", "gpus": 1, "engine": "trtllm-engine"}
    request = BuildRequest(
        checkpoint=str(release("r1-distill-qwen-7b")), out=tmp_path / "bundle", inputs=_inputs(flags), dry_run=True
    )
    with pytest.raises(ConflictError, match="BUILDER_FORCE_NUM_PROFILES: is 3 in the environment"):
        build(request, Settings(), {"BUILDER_FORCE_NUM_PROFILES": "3"}, host_memory_bytes=None)


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_the_arguments_of_every_model_are_those_of_its_plan(config: Path) -> None:
    for flags in ON_GPUS:
        plan = planned(config, flags)
        request = GpuRequest(flags=_inputs(flags), file=Inputs())
        found = plan_for_gpus(read_model(str(config)), request, {}).plan
        if isinstance(plan, str):
            with pytest.raises(ConflictError):
                require_fit(found)
        elif found.engine == "trtllm-pytorch":
            args, _ = settled_args(TrtllmWish(), found)
            assert _shown(plan) == {key: args.values[key] for key in _shown(plan)}


def _shown(plan: dict[str, Any]) -> dict[str, Any]:
    limits, cache, shape = plan["limits"], plan["kv_cache"], plan["shape"]
    return {
        "max_batch_size": limits["max_batch_size"],
        "max_num_tokens": limits["max_num_tokens"],
        "max_seq_len": limits["max_seq_len_tokens"],
        "enable_chunked_prefill": limits["chunked_prefill"],
        "kv_cache_config.tokens_per_block": cache["block_tokens"],
        "kv_cache_config.free_gpu_memory_fraction": cache["fraction"],
        "tensor_parallel_size": shape["tp"],
        "pipeline_parallel_size": shape["pp"],
        "enable_attention_dp": shape["attention_dp"],
    }
