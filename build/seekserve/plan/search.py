"""The best shapes on given GPUs, with reasons; and the smallest number of GPUs that would hold a model at all.

Order of preference: what fits; tensor parallelism inside one NVLink domain; few pipeline stages; whole experts on each
rank (EP = TP). Attention DP comes first only for a batch that one cache pool cannot serve. Small models get replicas,
and so does whatever fits on GPUs without an NVLink switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from .case import Case, Target, Wish, work_out
from .gpus import Gpu
from .model import Model
from .parallel import candidate_shapes
from .shape import Shape
from .support import precision_refusal

__all__ = ["Suggestion", "best_shapes", "smallest_count", "target_for"]

_COUNTS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
_SHOWN: Final = 4
_REPLICA_SHARE: Final = 0.5
"""A model whose weights take at most this much of one GPU runs as replicas."""
_FEW_SEQUENCES: Final = 8
"""A replica that holds fewer is worth spreading over more GPUs."""
_WIDE_BATCH: Final = 256
"""Requests at once from which attention DP pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    case: Case
    reasons: tuple[str, ...]


def best_shapes(
    model: Model, target: Target, wish: Wish, fixed: Mapping[str, int | bool], *, throughput: bool = False
) -> tuple[Suggestion, ...]:
    """The first is what a plan takes; fewer than asked when fewer are legal; none when nothing fits."""
    is_wide = throughput or (wish.max_batch_size or 0) > _WIDE_BATCH
    cases = [work_out(model, target, wish, shape) for shape in candidate_shapes(model, target, dict(fixed))]
    fitting = sorted((case for case in cases if case.fits), key=lambda case: _order(case, is_wide))
    by_size = {(case.shape.gpus, case.shape.attention_dp): case for case in reversed(fitting)}
    by_cut = {(case.shape.tp, case.shape.pp, case.shape.attention_dp): case for case in reversed(fitting)}
    # The best of each size first, then other ways of cutting the same number of GPUs; back in the order of preference.
    wanted = [case.shape for case in (*reversed(by_size.values()), *reversed(by_cut.values()))]
    chosen = list(dict.fromkeys(wanted))[:_SHOWN]
    return tuple(Suggestion(case=case, reasons=_reasons(case)) for case in fitting if case.shape in chosen)


def _order(case: Case, is_wide: bool) -> tuple[object, ...]:
    shape, target = case.shape, case.target
    runs_alone = case.model.main_bytes <= _REPLICA_SHARE * target.gpu.memory_bytes
    spread = shape.gpus if runs_alone or target.gpu.nvlink_scope != "switch" else -shape.gpus
    return (
        shape.tp > target.domain_gpus,
        case.sequences < _FEW_SEQUENCES,
        spread,
        shape.pp,
        shape.attention_dp != is_wide,
        -shape.ep,
    )


def _reasons(case: Case) -> tuple[str, ...]:
    shape, target = case.shape, case.target
    reasons = []
    if case.replicas > 1:
        share = case.most_weights_bytes / target.gpu.memory_bytes
        reasons.append(f"{case.replicas} replicas, weights take {share:.0%} of a GPU")
    if shape.tp > target.domain_gpus:
        reasons.append(f"TP {shape.tp} crosses nodes of {target.gpus_per_node}: every layer waits for the network")
    elif shape.tp > 1:
        link = (
            "inside one NVLink domain" if target.gpu.nvlink_scope == "switch" else "inside one host, without a switch"
        )
        reasons.append(f"TP {shape.tp} {link}")
    if shape.pp > 1:
        reasons.append(f"{shape.pp} stages: only activations cross between them, first tokens wait for all")
    if shape.attention_dp:
        reasons.append(f"{shape.kv_pools} separate caches: throughput, not latency")
    if shape.ep > 1 and shape.moe_tp == 1:
        reasons.append("whole experts on each rank")
    return tuple(reasons)


def target_for(target: Target, gpu: Gpu, gpus: int) -> Target:
    """The same engine on another number or kind of GPUs, in hosts of the usual size."""
    return replace(target, gpu=gpu, gpus=gpus, nodes=max(-(-gpus // gpu.node_gpus), 1))


def smallest_count(model: Model, target: Target, wish: Wish, gpu: Gpu) -> Case | None:
    """The smallest usual number of these GPUs that runs the model; None when none of up to 128 does."""
    if precision_refusal(model.precision, gpu) is not None:
        return None
    for count in _COUNTS:
        if model.main_bytes > count * gpu.memory_bytes:
            continue
        other = target_for(target, gpu, count)
        for shape in _plain_shapes(model, other):
            case = work_out(model, other, wish, shape)
            if case.fits:
                return case
    return None


def _plain_shapes(model: Model, target: Target) -> list[Shape]:
    """One per way of cutting all GPUs, TP as large as a domain allows first."""
    shapes = [
        shape
        for shape in candidate_shapes(model, target, {"attention_dp": False})
        if shape.gpus == target.gpus and shape.tp <= target.domain_gpus
    ]
    by_cut: dict[tuple[int, int], Shape] = {}
    for shape in sorted(shapes, key=lambda s: (s.pp, -s.ep)):
        by_cut.setdefault((shape.tp, shape.pp), shape)
    return list(by_cut.values())[:3]
