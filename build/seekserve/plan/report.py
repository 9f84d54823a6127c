"""The plan for people: what runs where, memory as table and bar, cache, limits, shapes considered, findings.

Bytes and shares side by side. Sources of values and formulas of estimates are `report_explain.py`'s.
"""

from __future__ import annotations

from typing import Final

from seekserve.output import bytes_text, table

from .case import Case
from .deployment import Deployment
from .gpus import GIB
from .memory import RankMemory
from .naive import naive_kv_bytes_per_token
from .plan import Plan

__all__ = ["plan_text"]

_TITLES: Final = {
    "weights": ("weights", "W"),
    "absorbed_weights": ("absorbed copies", "w"),
    "activations": ("one step", "A"),
    "framework": ("framework", "F"),
    "communication": ("communication", "C"),
    "rank0_extra": ("rank 0 extra", "0"),
    "kv_cache": ("KV cache", "K"),
    "cuda_graphs": ("CUDA graphs", "G"),
    "left_over": ("left over", "."),
}
_BAR_WIDTH: Final = 60
_MARKS: Final = {"error": "ERROR  ", "warning": "warning", "note": "note   "}


def plan_text(plan: Plan) -> str:
    deployment = plan.deployment
    assert deployment is not None
    case = deployment.case
    verdict = "" if deployment.fits else "  -- NO PLAN, see the errors below"
    replicas = f", {case.replicas} replicas" if case.replicas > 1 else ""
    lines = [
        f"{case.model.name} on {case.target.gpus} x {case.target.gpu.name}: {case.shape}{replicas}{verdict}",
        *table(_head_rows(plan, deployment)),
        "",
        f"Memory per GPU of {case.target.gpu.memory_text}",
        *_memory_lines(case.ranks),
    ]
    if case.loads:
        lines += ["", "KV cache", *table(_cache_rows(plan, case))]
    lines += ["", "Limits of one replica", *table(_limit_rows(plan, deployment))]
    if len(deployment.alternatives) > 1:
        lines += ["", "Shapes considered, best first", *_alternative_lines(deployment)]
    lines += ["", *_finding_lines(deployment)]
    return "\n".join(lines)


def _head_rows(plan: Plan, deployment: Deployment) -> list[tuple[str, str]]:
    case, target = deployment.case, deployment.target
    gpu = target.gpu
    nodes = f"{target.nodes} nodes of {target.gpus_per_node}" if target.nodes > 1 else "one node"
    rows = [
        ("model", case.model.title),
        ("engine", f"{plan.engine}, TensorRT-LLM {target.version}"),
        ("weights", f"{plan.weights_dtype}, {bytes_text(plan.weights_bytes)} once ({case.model.source})"),
        ("GPU", f"{gpu.architecture} SM{gpu.sm}, {gpu.memory_text}, {nodes}; figures of {gpu.confidence} confidence"),
    ]
    if deployment.preset:
        rows.append(("preset", deployment.preset))
    if case.wish.mtp:
        rows.append(
            ("MTP", f"{case.wish.mtp} drafted tokens, {min(case.wish.mtp, case.model.mtp_layers)} MTP layer loaded")
        )
    return rows


def _memory_lines(ranks: tuple[RankMemory, ...]) -> list[str]:
    columns = [dict(rank.rows()) for rank in ranks]
    shown = [key for key in _TITLES if any(column[key] for column in columns)]
    head = "  " + " " * 16 + "".join(f"{rank.label:>22}" for rank in ranks)
    lines = [head] if len(ranks) > 1 else []
    for key in shown:
        cells = [_cell(column[key], rank.total_bytes) for column, rank in zip(columns, ranks, strict=True)]
        lines.append(f"  {_TITLES[key][0]:<16}" + "".join(f"{cell:>22}" for cell in cells))
    for rank in ranks:
        label = f" {rank.label}" if len(ranks) > 1 else ""
        lines.append(f"  [{_bar(rank)}]{label}")
    legend = ", ".join(f"{_TITLES[key][1]} {_TITLES[key][0]}" for key in shown)
    return [*lines, f"  {legend}"]


def _cell(size_bytes: int, total_bytes: int) -> str:
    return f"{size_bytes / GIB:.2f} GiB {size_bytes / total_bytes:6.1%}"


def _bar(rank: RankMemory) -> str:
    """Cumulative rounding, so that the pieces add up to the width; what does not fit is marked with !."""
    drawn, used = "", 0
    for key, size in rank.rows():
        if key == "left_over":
            break
        used += size
        end = round(min(used / rank.total_bytes, 1.0) * _BAR_WIDTH)
        drawn += _TITLES[key][1] * (end - len(drawn))
    drawn = drawn.ljust(_BAR_WIDTH, ".")
    return drawn + "!" if rank.left_over_bytes < 0 else drawn


def _cache_rows(plan: Plan, case: Case) -> list[tuple[str, str]]:
    found, now = case.capacity, case.concurrency
    per_token = f"{plan.kv.bytes_per_token:,} B in {plan.kv.dtype}"
    naive = naive_kv_bytes_per_token(case)
    if naive is not None:
        per_token += f" (the per-head formula says {naive:,} B, wrong by {naive / plan.kv.bytes_per_token:.0f} x)"
    pools = f" in each of {found.pools} attention-DP ranks" if found.pools > 1 else ""
    rows = [
        ("per token", per_token),
        ("capacity", f"{found.tokens:,} tokens = {found.blocks:,} blocks x {found.block_tokens}"),
        ("cap", f"{found.verdict} (smallest on {found.deciding_rank}, fraction {case.fraction:g})"),
        ("whole sequences", f"{case.sequences} of {case.wish.max_seq_len_tokens:,} tokens at once"),
        (
            f"ISL {case.wish.isl} / OSL {case.wish.osl}",
            f"{now.admitted} prompts fit, {now.steady} run steadily, {now.completing} can all run to their end",
        ),
    ]
    per_request = max(rank.kv_bytes_per_request for rank in case.ranks)
    if per_request:
        held = f"{bytes_text(per_request)} window and state, held for {found.reserved_requests} requests"
        rows.insert(1, ("per request", held))
    if pools:
        rows.insert(2, ("pools", f"{found.blocks_per_pool:,} blocks{pools}"))
    return rows


def _limit_rows(plan: Plan, deployment: Deployment) -> list[tuple[str, str]]:
    case, limits = deployment.case, plan.limits
    pools = case.shape.kv_pools
    batch = f"{limits.max_batch_size} requests at once"
    if pools > 1:
        batch = f"{limits.max_batch_size} requests at once on each of {pools} ranks"
    how = f"chunks of {limits.prefill_chunk_tokens}" if case.wish.chunked_prefill else "whole prompts, no chunks"
    graphs = deployment.cuda_graph_batch_sizes
    return [
        ("sequence", f"{limits.max_seq_len_tokens:,} tokens; prompts up to {plan.prompt_limit_tokens:,}"),
        ("batch", batch),
        ("step", f"{limits.max_num_tokens:,} tokens, prefill in {how}"),
        ("when full", f"{deployment.capacity_policy}, block reuse {'on' if deployment.block_reuse else 'off'}"),
        ("CUDA graphs", f"{len(graphs)} batch sizes up to {graphs[-1]}" if graphs else "none"),
    ]


def _alternative_lines(deployment: Deployment) -> list[str]:
    rows = []
    for number, suggestion in enumerate(deployment.alternatives, start=1):
        case = suggestion.case
        text = (
            f"{case.most_weights_bytes / GIB:.1f} GiB of weights, {case.capacity.tokens * case.replicas:,} cached "
            f"tokens, {case.sequences * case.replicas} sequences; {'; '.join(suggestion.reasons)}"
        )
        rows.append((f"{number}. {case.shape}", text))
    return table(rows)


def _finding_lines(deployment: Deployment) -> list[str]:
    lines = []
    for found in deployment.findings:
        lines.append(f"{_MARKS[found.severity]}  {found.rule}: {found.message}")
        lines.append(f"           -> {found.hint}")
    errors = len(deployment.errors)
    warnings = sum(found.severity == "warning" for found in deployment.findings)
    return [*lines, f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"]
