"""Builds bundles for TensorRT-LLM's PyTorch backend: weights and tokenizer as released, and a checked llm_args.yaml.

There is no engine file. Everything is checked before the first byte is written: the arguments (`pytorch_args.py`), the
checkpoint's cache format, the target, the space on disk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import seekserve
from seekserve.errors import InputError
from seekserve.output import bytes_text
from seekserve.plan.deployment import Deployment
from seekserve.plan.plan import Plan
from seekserve_backend.contract.bundle import TRTLLM_ARGS_FILE, Bundle, Parallel, TrtllmSpec

from .chat_texts import read_chat_texts
from .existing import judge_existing
from .llm_args import Args, gpus_per_node, nested, yaml_text
from .outcome import BuildOutcome, BuildWish
from .pytorch_args import settled_args
from .source import Source
from .writer import Progress, check_disk_space, write_bundle

__all__ = ["LOAD_BYTES_PER_S", "WARM_UP_S", "build_trtllm_pytorch"]

LOAD_BYTES_PER_S: Final = 200e6
"""Slow network storage: DeepSeek-V3's first load of about an hour is reported."""
WARM_UP_S: Final = 600.0
"""Kernel compilation, autotuning and CUDA graphs after the weights are there."""


def build_trtllm_pytorch(wish: BuildWish, plan: Plan, source: Source, *, progress: Progress) -> BuildOutcome:
    """Writes the bundle, or finds the very same one there. Raises before anything is written when it must not."""
    deployment = plan.deployment
    assert deployment is not None
    _check_cache_format(plan, source.folder)
    args, warnings = settled_args(wish.trtllm, plan)
    bundle = _describe(wish, plan, source, args)
    chat = read_chat_texts(source.folder, source.facts.family, source.checkpoint.tokenizer.chat_template)
    texts = {TRTLLM_ARGS_FILE: yaml_text(nested(args.values), _comments(deployment))}
    if chat.content is not None:
        texts[chat.file] = chat.content
    outcome = BuildOutcome(
        bundle=bundle,
        status="dry-run",
        copies=source.copies,
        texts=texts,
        needs=_needs(source, wish, bundle, deployment),
        warnings=(*warnings, *chat.warnings),
    )
    return _write(wish, outcome, progress)


def _write(wish: BuildWish, outcome: BuildOutcome, progress: Progress) -> BuildOutcome:
    target, copies = wish.target, outcome.copies
    exists = target.exists() or target.is_symlink()
    if exists:
        there = judge_existing(
            target,
            outcome.bundle,
            copies,
            force=wish.force,
            texts=outcome.texts,
            needs_copies=not wish.link_weights,
        )
        if there is not None:
            return replace(outcome, bundle=there, status="reused")
    check_disk_space(target, copies, link_weights=wish.link_weights)
    if wish.dry_run:
        return outcome
    written = write_bundle(
        target,
        outcome.bundle,
        copies,
        link_weights=wish.link_weights,
        replace_target=exists,
        progress=progress,
        texts=outcome.texts,
    )
    return replace(outcome, bundle=written, status="replaced" if exists else "built")


def _check_cache_format(plan: Plan, folder: Path) -> None:
    """A checkpoint that asks for an FP8 cache gets one whatever the arguments leave out, so bf16 cannot be had."""
    path = folder / "hf_quant_config.json"
    if plan.kv.dtype == "fp8_e4m3" or not path.is_file():
        return
    data: Any = json.loads(path.read_text(encoding="utf-8"))
    block = data.get("quantization") if isinstance(data, dict) else None
    asked = block.get("kv_cache_quant_algo") if isinstance(block, dict) else None
    if asked:
        raise InputError(
            f"{path.name} asks for a {asked} cache (kv_cache_quant_algo) and TensorRT-LLM follows it, the plan says "
            f"{plan.kv.dtype} ({plan.sources['kv_cache.dtype']})",
            hint="--kv-dtype fp8_e4m3, or a checkpoint without kv_cache_quant_algo",
        )


def _describe(wish: BuildWish, plan: Plan, source: Source, args: Args) -> Bundle:
    """The bundle before its files are known."""
    assert plan.deployment is not None
    case = plan.deployment.case
    start_s = round(source.facts.weights_bytes / LOAD_BYTES_PER_S + WARM_UP_S, 0)
    sources = {**plan.sources, **{f"llm_args.{path}": text for path, text in args.sources.items()}}
    sources["trtllm.start_timeout_s"] = (
        f"derived: {bytes_text(source.facts.weights_bytes)} at {LOAD_BYTES_PER_S / 1e6:.0f} MB/s, and {WARM_UP_S:.0f} s"
    )
    return Bundle(
        name=plan.name,
        family=plan.family,
        engine=plan.engine,
        toolkit_version=seekserve.__version__,
        engine_version=case.target.version,
        gpu=plan.gpu,
        parallel=Parallel(
            tp=plan.tp,
            pp=plan.pp,
            ep=plan.ep,
            moe_tp=case.shape.moe_tp if case.model.is_moe else 1,
            attention_dp=case.shape.attention_dp,
            gpus_per_node=gpus_per_node(case),
        ),
        weights_dtype=plan.weights_dtype,
        weights_bytes=plan.weights_bytes,
        limits=plan.limits,
        kv=plan.kv,
        step_model=plan.step_model,
        sources=sources,
        files={},
        trtllm=TrtllmSpec(
            version=case.target.version,
            model_dir="weights",
            max_beam_width=args.values.get("max_beam_width", 1),
            draft_tokens=_draft_tokens(args, case.wish.mtp),
            retention=wish.trtllm.retention,
            start_timeout_s=start_s,
        ),
    )


def _draft_tokens(args: Args, mtp: int) -> int:
    given = args.values.get("speculative_config.max_draft_len", mtp)
    return mtp or (given if type(given) is int else 0)


def _comments(deployment: Deployment) -> Sequence[str]:
    case = deployment.case
    gpus = f"{case.shape.gpus} x {case.target.gpu.name}"
    return (
        f"Arguments of tensorrt_llm.LLM, TensorRT-LLM {case.target.version}, PyTorch backend.",
        f"{case.model.name} in {case.model.precision} on {gpus}: {case.shape}.",
        "Nothing else was decided. bundle.json says where each value comes from.",
    )


def _needs(source: Source, wish: BuildWish, bundle: Bundle, deployment: Deployment) -> tuple[str, ...]:
    assert bundle.trtllm is not None
    weights = sum(copy.size_bytes for copy in source.copies if copy.is_weights)
    small = sum(copy.size_bytes for copy in source.copies if not copy.is_weights)
    hosts = f"{bundle.parallel.nodes} host{'s' * (bundle.parallel.nodes > 1)}"
    disk = bytes_text(small + (0 if wish.link_weights else weights))
    where = "linked, so they must stay where they are" if wish.link_weights else "copied"
    return (
        f"disk: {disk}; the weights of {bytes_text(weights)} are {where}",
        f"GPUs: {bundle.parallel.world_size} x {bundle.gpu} on {hosts}, at launch only",
        f"cache: {deployment.capacity.verdict}",
        f"start: up to {bundle.trtllm.start_timeout_s:.0f} s ({bundle.sources['trtllm.start_timeout_s']})",
    )
