"""llm_args.yaml of an engine: the run-time options of tensorrt_llm._tensorrt_engine.LLM, and nothing that is built in.

An engine brings its own lengths, beams, precision and cache type, so an argument that would set one of them is refused
with the flag of the build instead. Paths (model, tokenizer) are the backend's, which knows where the bundle lies.
"""

from __future__ import annotations

from typing import Final

from seekserve.errors import ConflictError
from seekserve.output import problems_text
from seekserve.trtllm import raise_errors, validate_llm_args

from ..llm_args import Args, gpus_per_node, nested, yaml_text
from ..user_args import conflicts, laid_over
from .job import Job

__all__ = ["args_text", "engine_args"]

_BUILT_IN: Final = {
    "max_input_len": "--build-flag max_input_len=N",
    "dtype": "nothing: the checkpoint decides",
    "build_config": "--build-flag NAME=VALUE",
    "quant_config": "the precision of the plan",
    "calib_config": "--calibration-data",
    "fast_build": "--build-flag fast_build=true",
    "enable_build_cache": "nothing: an engine is built once, by this command",
    "speculative_config": "--build-flag speculative_decoding_mode=MODE",
}
"""Argument -> where it is said for an engine."""
_ENGINE_HAS: Final = (
    "max_seq_len",
    "max_beam_width",
    "moe_expert_parallel_size",
    "moe_tensor_parallel_size",
    "kv_cache_config.dtype",
    "kv_cache_config.tokens_per_block",
)
"""Taken from the engine whatever is given; its cache type may not be given at all."""


def engine_args(job: Job, *, beam_width: int) -> tuple[Args, list[str]]:
    """With the warnings. Raises ConfigError or ConflictError with everything that is wrong."""
    given, places = job.wish.trtllm.args, job.wish.trtllm.args_sources
    planned = _planned(job, beam_width)
    problems = [
        f"{path}: is built into the engine ({places.get(path, 'given')}); say it with {instead}"
        for path, instead in _BUILT_IN.items()
        if path in given
    ]
    problems += conflicts(planned, given, places, 0)
    if problems:
        raise ConflictError(problems_text("no engine", problems), hint="nothing was written")
    args = laid_over(planned, given, places)
    for path in _ENGINE_HAS:
        args.drop(path)
    found = validate_llm_args(nested(args.values), job.version, engine_kind="trtllm-engine", case=job.case)
    raise_errors(found, f"arguments for TensorRT-LLM {job.version.version}")
    return args, [f"llm_args.yaml: {finding.text}" for finding in found]


def args_text(args: Args, job: Job) -> str:
    what = f"tensorrt_llm._tensorrt_engine.LLM {job.version.version}"
    return yaml_text(nested(args.values), [f"Arguments of {what}; model and tokenizer are the bundle's."])


def _planned(job: Job, beam_width: int) -> Args:
    sources = job.plan.sources
    args = Args()
    args.put("tensor_parallel_size", job.parallel.tp, sources["parallel.tp"])
    args.put("pipeline_parallel_size", job.parallel.pp, sources["parallel.pp"])
    args.put("gpus_per_node", gpus_per_node(job.planned), "derived: GPUs of one replica on each host")
    # Without these two the run time caps an engine at its own defaults.
    args.put("max_batch_size", job.limits.max_batch_size, sources["limits.max_batch_size"])
    args.put("max_num_tokens", job.limits.max_num_tokens, sources["limits.max_num_tokens"])
    args.put("max_seq_len", job.limits.max_seq_len_tokens, sources["limits.max_seq_len_tokens"])
    args.put("max_beam_width", beam_width, "built into the engine")
    if job.is_moe:
        args.put("moe_expert_parallel_size", job.parallel.ep, sources["parallel.ep"])
        args.put("moe_tensor_parallel_size", job.parallel.moe_tp, sources["parallel.moe_tp"])
    _cache(args, job)
    args.put("enable_chunked_prefill", job.planned.wish.chunked_prefill, sources["limits.chunked_prefill"])
    policy = "scheduler_config.capacity_scheduler_policy"
    args.put(policy, job.deployment.capacity_policy, sources["kv_cache.policy"])
    graphs = sources.get("limits.cuda_graphs", "")
    if job.planned.wish.cuda_graphs and graphs.startswith(("flag", "environment", "file")):
        # An engine's run time captures none unless told to, and the plan's own default leaves that as it is.
        args.put("extended_runtime_perf_knob_config.cuda_graph_mode", True, graphs)
    args.put("skip_tokenizer_init", True, "the service turns text into tokens itself and passes tokens")
    return args


def _cache(args: Args, job: Job) -> None:
    sources, planned, deployment = job.plan.sources, job.planned, job.deployment
    args.put("kv_cache_config.tokens_per_block", job.kv.block_tokens, sources["kv_cache.block_tokens"])
    args.put("kv_cache_config.free_gpu_memory_fraction", planned.fraction, sources["kv_cache.fraction"])
    if planned.wish.max_tokens is not None:
        tokens = planned.wish.max_tokens // job.kv.block_tokens * job.kv.block_tokens
        args.put("kv_cache_config.max_tokens", tokens, sources["kv_cache.capacity_blocks"])
    args.put("kv_cache_config.enable_block_reuse", deployment.block_reuse, "derived: from model and GPU generation")
    if deployment.host_cache_bytes:
        per_rank = deployment.host_cache_bytes // job.world_size
        args.put("kv_cache_config.host_cache_size", per_rank, f"{sources['kv_cache.host_cache_gib']}, for each rank")
    if deployment.use_uvm:
        args.put("kv_cache_config.use_uvm", True, sources["kv_cache.use_uvm"])
