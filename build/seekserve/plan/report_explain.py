"""`plan --explain`: the source of every value, the formula of every estimate, and where other planners differ."""

from __future__ import annotations

from typing import Final

from seekserve.output import bytes_text, table

from .case import Case
from .curated import Profile, curated_args, curated_notes, situation_of
from .gpus import GIB
from .naive import aiconfigurator_differences
from .plan import Plan
from .precisions import precision_options

__all__ = ["explain_text", "guide_lines"]

_FIRST_TF32_SM: Final = 80
_GUIDE_LINE: Final = (
    "A practitioners' table (fp16 4,200, int8 5,800, fp8 5,100 tokens/s at 38, 22, 29 GB) names no model or GPU; the "
    "rows above are this one's."
)


def explain_text(plan: Plan) -> str:
    deployment = plan.deployment
    assert deployment is not None
    case = deployment.case
    lines = ["Where each value comes from", *table(_value_rows(plan))]
    lines += ["", "Weights of the first GPU by part", *table(_part_rows(case))]
    lines += ["", f"One step of {case.max_num_tokens} tokens, by buffer", *table(_buffer_rows(case))]
    differences = aiconfigurator_differences(case)
    if differences:
        lines += ["", "aiconfigurator 0.12.0 for the same case, GiB of weights per GPU"]
        lines += table([(d.part, f"{d.theirs_gib:7.2f} there, {d.ours_gib:7.2f} here  {d.note}") for d in differences])
    lines += [
        "",
        f"Other precisions, same GPUs and shape ({case.shape})",
        *table(_precision_rows(case)),
        f"  {_GUIDE_LINE}",
    ]
    gpu = case.target.gpu
    lines += ["", _tf32_line(case)]
    lines += ["", f"GPU figures: {gpu.source} ({gpu.confidence} confidence)" + (f"; {gpu.note}" if gpu.note else "")]
    return "\n".join(lines)


def _tf32_line(case: Case) -> str:
    """Asked for by guides for 16-bit services; neither engine kind has a switch."""
    gpu, precision = case.target.gpu, case.model.precision
    if gpu.sm < _FIRST_TF32_SM:
        return f"TF32: {gpu.architecture} (SM{gpu.sm}) has none; it begins with Ampere (SM{_FIRST_TF32_SM})"
    used = "here all weights are" if precision == "fp32" else f"with {precision} weights hardly any are"
    if case.target.engine == "trtllm-engine":
        return (
            f"TF32: {gpu.architecture} has it for products of FP32 numbers, and {used}; trtllm-build has no flag for it"
        )
    return (
        f"TF32: {gpu.architecture} has it for products of FP32 numbers, and {used}; TensorRT-LLM has no argument for "
        "it. TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 in the environment of every rank turns it on in PyTorch, which reads "
        "it when it is loaded: in env_overrides it would come too late"
    )


def guide_lines(plan: Plan, profile: Profile | None) -> list[str]:
    """What NVIDIA's guides add to the arguments of tensorrt_llm.LLM, beside the limits; nothing for other engines."""
    deployment = plan.deployment
    if deployment is None or plan.engine != "trtllm-pytorch":
        return []
    case = deployment.case
    found = curated_args(situation_of(case), profile, is_moe=case.model.is_moe)
    rows = [(path, f"{value}  ({found.sources[path]})") for path, value in found.values.items()]
    lines = [*table(rows), *(f"  {note}" for note in curated_notes(situation_of(case)))]
    return ["\n".join(["Guides' arguments, where the version has them", *lines])] if lines else []


def _value_rows(plan: Plan) -> list[tuple[str, str]]:
    values = _values(plan)
    rows = []
    for key in sorted(plan.sources):
        value = values.get(key)
        rows.append((key, f"{value if value is not None else '-'}  ({plan.sources[key]})"))
    return rows


def _values(plan: Plan) -> dict[str, object]:
    deployment = plan.deployment
    assert deployment is not None
    case, target = deployment.case, deployment.target
    wish, shape = case.wish, case.shape
    return {
        "name": plan.name,
        "engine": plan.engine,
        "target.gpu": target.gpu.name,
        "target.gpus": target.gpus,
        "target.nodes": target.nodes,
        "target.trtllm_version": target.version,
        "parallel.tp": shape.tp,
        "parallel.pp": shape.pp,
        "parallel.ep": shape.ep,
        "parallel.moe_tp": shape.moe_tp,
        "parallel.attention_dp": shape.attention_dp,
        "parallel.mtp": wish.mtp,
        "workload.isl_tokens": wish.isl,
        "workload.osl_tokens": wish.osl,
        "limits.max_seq_len_tokens": wish.max_seq_len_tokens,
        "limits.max_batch_size": case.max_batch_size,
        "limits.max_num_tokens": case.max_num_tokens,
        "limits.prefill_chunk_tokens": case.prefill_chunk_tokens,
        "limits.chunked_prefill": wish.chunked_prefill,
        "limits.cuda_graphs": wish.cuda_graphs,
        "kv_cache.dtype": wish.kv_dtype,
        "kv_cache.block_tokens": wish.block_tokens,
        "kv_cache.capacity_blocks": case.capacity.blocks,
        "kv_cache.fraction": case.fraction,
        "kv_cache.indexer_dtype": wish.indexer_dtype,
        "kv_cache.policy": deployment.capacity_policy,
        "kv_cache.host_cache_gib": deployment.host_cache_bytes / GIB,
        "kv_cache.use_uvm": deployment.use_uvm,
        "memory.rank0_overhead_mib": wish.rank0_overhead_mib,
    }


def _part_rows(case: Case) -> list[tuple[str, str]]:
    parts = sorted(case.ranks[0].weights.items(), key=lambda item: -item[1])
    return [(part.replace("_", " "), f"{size / GIB:8.3f} GiB") for part, size in parts]


def _buffer_rows(case: Case) -> list[tuple[str, str]]:
    return [(b.name, f"{bytes_text(b.size_bytes)} = {b.formula}") for b in case.ranks[0].activations]


def _precision_rows(case: Case) -> list[tuple[str, str]]:
    rows = []
    for option in precision_options(case):
        own = " (the checkpoint)" if option.is_own else ""
        tokens = f"{option.kv_tokens:,} cached tokens" if option.fits else "no cache"
        text = f"{option.weights_bytes_per_gpu / GIB:7.1f} GiB per GPU, {tokens}: {option.verdict}"
        rows.append((option.kind + own, text))
    return rows
