"""The plan as one JSON object for machines: the same numbers that the text shows, in bytes and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .case import Case
from .deployment import Deployment
from .estimate import Estimate
from .memory import RankMemory
from .naive import aiconfigurator_differences, naive_kv_bytes_per_token
from .plan import Plan
from .precisions import precision_options

__all__ = ["plan_json"]


def plan_json(plan: Plan, *, explain: bool = False, estimate: Estimate | None = None) -> dict[str, Any]:
    """Raises nothing; a plan that does not fit has `fits` false and says why in `findings`."""
    deployment = plan.deployment
    assert deployment is not None
    case, target = deployment.case, deployment.target
    out: dict[str, Any] = {
        "fits": deployment.fits,
        "name": plan.name,
        "family": plan.family,
        "model": case.model.title,
        "parameters": case.model.parameters.to_json(),
        "weights": {"precision": plan.weights_dtype, "bytes": plan.weights_bytes, "source": case.model.source},
        "engine": plan.engine,
        "trtllm_version": target.version,
        "gpu": {
            "name": target.gpu.name,
            "memory_bytes": target.gpu.memory_bytes,
            "sm": target.gpu.sm,
            "confidence": target.gpu.confidence,
        },
        "gpus": target.gpus,
        "nodes": target.nodes,
        "shape": {**deployment.shape.to_json(), "replicas": case.replicas},
        "memory": _memory(plan, deployment),
        "limits": {
            **plan.limits.to_json(),
            "prompt_limit_tokens": plan.prompt_limit_tokens,
            "chunked_prefill": case.wish.chunked_prefill,
            "cuda_graph_batch_sizes": list(deployment.cuda_graph_batch_sizes),
            "mtp": case.wish.mtp,
        },
        "kv_cache": {
            **plan.kv.to_json(),
            "fraction": case.fraction,
            "policy": deployment.capacity_policy,
            "block_reuse": deployment.block_reuse,
            "host_cache_bytes": deployment.host_cache_bytes,
            "use_uvm": deployment.use_uvm,
        },
        "concurrency": _concurrency(case),
        "alternatives": [_alternative(s.case, s.reasons) for s in deployment.alternatives],
        "step_model": None if plan.step_model is None else plan.step_model.to_json(),
        "estimate": None if estimate is None else estimate.to_json(),
        "findings": [finding.to_json() for finding in deployment.findings],
    }
    if explain:
        out |= _explained(plan, case)
    return out


def _memory(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    case = deployment.case
    return {
        "weights_bytes_per_gpu": case.most_weights_bytes,
        "kv_bytes_per_token": plan.kv.bytes_per_token,
        "kv_bytes_per_token_naive": naive_kv_bytes_per_token(case),
        "kv_bytes_per_request": max(rank.kv_bytes_per_request for rank in case.ranks),
        "kv_capacity_tokens": case.capacity.tokens,
        "kv_capacity_blocks": case.capacity.blocks,
        "kv_pools": case.capacity.pools,
        "max_sequences": case.sequences,
        "prompt_limit_tokens": plan.prompt_limit_tokens,
        "binding_cap": case.capacity.binding_cap,
        "caps_tokens": {"fraction": case.capacity.fraction_tokens, "tokens": case.capacity.asked_tokens},
        "left_over_bytes": case.worst.left_over_bytes,
        "ranks": [_rank(rank) for rank in case.ranks],
    }


def _rank(rank: RankMemory) -> dict[str, Any]:
    return {
        "label": rank.label,
        "gpus": rank.ranks,
        "stage": rank.stage,
        "total_bytes": rank.total_bytes,
        **{f"{name}_bytes": size for name, size in rank.rows()},
        "shares": {name: round(size / rank.total_bytes, 4) for name, size in rank.rows()},
        "weights_by_part": dict(rank.weights),
        "activations_by_buffer": {buffer.name: buffer.size_bytes for buffer in rank.activations},
        "kv_bytes_per_token": rank.kv_bytes_per_token,
    }


def _concurrency(case: Case) -> dict[str, int]:
    now = case.concurrency
    return {
        "isl_tokens": case.wish.isl,
        "osl_tokens": case.wish.osl,
        "admitted": now.admitted,
        "steady": now.steady,
        "completing": now.completing,
        "max_batch_size_per_replica": case.max_batch_size * case.shape.kv_pools,
    }


def _alternative(case: Case, reasons: tuple[str, ...]) -> dict[str, Any]:
    return {
        "shape": {**case.shape.to_json(), "replicas": case.replicas},
        "weights_bytes_per_gpu": case.most_weights_bytes,
        "kv_capacity_tokens": case.capacity.tokens * case.replicas,
        "max_sequences": case.sequences * case.replicas,
        "reasons": list(reasons),
    }


def _explained(plan: Plan, case: Case) -> Mapping[str, Any]:
    return {
        "sources": dict(plan.sources),
        "aiconfigurator": [
            {"part": d.part, "theirs_gib": round(d.theirs_gib, 3), "ours_gib": round(d.ours_gib, 3), "note": d.note}
            for d in aiconfigurator_differences(case)
        ],
        "precisions": [
            {
                "precision": option.kind,
                "is_own": option.is_own,
                "weights_bytes_per_gpu": option.weights_bytes_per_gpu,
                "kv_capacity_tokens": option.kv_tokens,
                "verdict": option.verdict,
            }
            for option in precision_options(case)
        ],
        "buffers": {buffer.name: buffer.formula for buffer in case.ranks[0].activations},
    }
