"""The rule of thumb for cache bytes beside the true figure, and beside ours the figure of another planner.

The rule (keys and values of every head) is right for plain attention only; for latent attention it is off by a factor
that decides whether people believe a model fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from seekserve.checkpoint.kv import KV_LANE_BYTES
from seekserve.checkpoint.layout import LATENT

from .case import Case
from .gpus import GIB
from .overheads import overheads

__all__ = ["Difference", "aiconfigurator_differences", "naive_kv_bytes_per_token"]


def naive_kv_bytes_per_token(case: Case) -> int | None:
    """2 x layers x heads x head_dim, as guides give it; None where it is right."""
    config, architecture = case.model.config, case.model.architecture
    lane = KV_LANE_BYTES[case.wish.kv_dtype]
    if architecture in LATENT:
        key = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
        lanes = config.num_attention_heads * (key + config.integer("v_head_dim"))
    elif architecture.startswith("deepseek_v4"):
        lanes = 2 * config.num_attention_heads * config.head_dim
    else:
        return None
    return int(config.num_hidden_layers * lanes * lane)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    part: str
    theirs_gib: float
    ours_gib: float
    note: str


def aiconfigurator_differences(case: Case) -> tuple[Difference, ...]:
    """By part of the weights, for the one case whose figures are known; the last row is the sum."""
    known, shape = overheads().aiconfigurator, case.shape
    is_that = (
        case.model.family in (known["family"], "deepseek_r1")
        and case.target.gpu.name == known["gpu"]
        and {"tp": shape.tp, "pp": shape.pp, "ep": shape.ep} == known["shape"]
        and not shape.attention_dp
        and case.wish.mtp == 0
    )
    if not is_that:
        return ()
    ours = dict(case.ranks[0].weights)
    theirs = known["parts_gib"]
    rows = [
        Difference(
            part=part,
            theirs_gib=float(theirs.get(part, 0.0)),
            ours_gib=ours.get(part, 0) / GIB,
            note=known["notes"].get(part, ""),
        )
        for part in (*theirs, *(part for part in ours if part not in theirs))
    ]
    total = Difference(
        part="all weights",
        theirs_gib=sum(row.theirs_gib for row in rows),
        ours_gib=sum(row.ours_gib for row in rows),
        note=f"with activations and reserve, without cache: {known['total_without_kv_gib']} GiB there",
    )
    return (*rows, total)
