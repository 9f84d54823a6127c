"""Which tensor goes where: bytes of weights on each pipeline stage's ranks, exactly, by part of the model.

The rules are TensorRT-LLM's for these families: low-rank down-projections, router, norms and indexer are whole on every
rank; with attention DP so are attention, dense MLPs, shared experts, embedding and head. All TP ranks of a stage are
alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from seekserve.checkpoint import ModelConfig
from seekserve.checkpoint.layout import LATENT

from .shape import Shape, stage_layers
from .weights import WeightGroup

__all__ = ["StageWeights", "Splitter", "kv_heads_on_rank", "mlp_tp", "stage_weights"]

_BY_ROWS: Final = (
    "q_proj.weight", "q_b_proj.weight", "kv_b_proj.weight", "q_proj.bias", "attn.wq_b.weight", "attn.wo_a.weight",
    "attn_sink",
)  # fmt: skip
_BY_COLUMNS: Final = ("o_proj.weight", "attn.wo_b.weight")
_BY_KV_HEADS: Final = ("k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias")
_MLP_ROWS: Final = ("gate_proj.weight", "up_proj.weight", "w1.weight", "w3.weight", "gate_proj.bias", "up_proj.bias")
_MLP_COLUMNS: Final = ("down_proj.weight", "w2.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """Of one rank of a stage; the other TP ranks of that stage hold as much."""

    by_part: Mapping[str, int]
    absorbed_bytes: int
    """A second, transposed copy of half of kv_b_proj, which MLA engines make after loading."""

    @property
    def total_bytes(self) -> int:
        return sum(self.by_part.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitter:
    """Bytes of one group on one rank of the stage that has it."""

    config: ModelConfig
    shape: Shape
    gpus_per_node: int
    is_fp8_block: bool

    def rank_bytes(self, group: WeightGroup) -> int:
        name, tp = group.name, self.shape.attention_tp
        if group.part == "routed_experts" or name.startswith("experts.*."):
            count, ways = -(-group.count // self.shape.ep), self.shape.moe_tp
            return count * self._cut(group, _mlp_direction(name), ways)
        if group.part in ("embedding", "head", "engram_tables"):
            return self._cut(group, "rows", tp)
        if group.part in ("dense_mlp", "shared_experts") or ".shared_experts." in name:
            return self._cut(group, _mlp_direction(name), self._mlp_tp(group))
        if name.endswith(_BY_KV_HEADS):
            return self._cut(group, "rows", min(tp, self.config.num_key_value_heads))
        if group.part == "indexer" or "indexer." in name:
            return group.size_bytes
        if name.endswith(_BY_ROWS):
            return self._cut(group, "rows", tp)
        if name.endswith((*_BY_COLUMNS, "eh_proj.weight")):
            return self._cut(group, "columns", tp)
        return group.size_bytes

    def _mlp_tp(self, group: WeightGroup) -> int:
        width = group.columns if group.name.endswith(_MLP_COLUMNS) else group.rows
        return mlp_tp(width, self.shape, self.gpus_per_node, 128 if self.is_fp8_block else 1)

    def _cut(self, group: WeightGroup, direction: str, ways: int) -> int:
        rows = -(-group.rows // ways) if direction == "rows" else group.rows
        columns = -(-group.columns // ways) if direction == "columns" else group.columns
        per_tensor = group.storage.size_bytes(rows, columns)
        return per_tensor if group.name.startswith("experts.*.") else per_tensor * group.count


def mlp_tp(width: int, shape: Shape, gpus_per_node: int, block: int) -> int:
    """Ways that a dense MLP or the shared experts are cut: whole blocks, and never across nodes."""
    if shape.attention_dp:
        return 1
    ways = math.gcd(max(width // block, 1), shape.tp)
    return math.gcd(ways, gpus_per_node) if ways > gpus_per_node else ways


def kv_heads_on_rank(config: ModelConfig, shape: Shape) -> int:
    """More ranks than KV heads: each head is held more than once."""
    return -(-config.num_key_value_heads // shape.attention_tp)


def stage_weights(
    groups: Iterable[WeightGroup], config: ModelConfig, architecture: str, splitter: Splitter, *, mtp_layers: int
) -> tuple[StageWeights, ...]:
    """One entry for each pipeline stage. `mtp_layers` are those that run; they sit on the last stage."""
    stages = stage_layers(config.num_hidden_layers, splitter.shape.pp)
    stage_of = {layer: number for number, layers in enumerate(stages) for layer in layers}
    last = len(stages) - 1
    parts: list[dict[str, int]] = [{} for _ in stages]
    absorbed = [0] * len(stages)
    # Layers repeat each other: each kind of tensor is cut once.
    sizes: dict[tuple[object, ...], int] = {}
    for group in groups:
        if group.is_mtp and _mtp_number(group, config) >= mtp_layers:
            continue
        stage = last if group.is_mtp else _stage(group, stage_of, last)
        kind = (group.name, group.rows, group.columns, group.count, group.storage)
        size = sizes.get(kind)
        if size is None:
            size = sizes[kind] = splitter.rank_bytes(group)
        part = "mtp" if group.is_mtp else group.part
        parts[stage][part] = parts[stage].get(part, 0) + size
        if group.is_embedding and config.tie_word_embeddings and last > 0:
            parts[last]["head"] = parts[last].get("head", 0) + size
        if architecture in LATENT and group.name.endswith("kv_b_proj.weight"):
            nope, v_dim = config.integer("qk_nope_head_dim"), config.integer("v_head_dim")
            absorbed[stage] += size * nope // (nope + v_dim)
    return tuple(StageWeights(by_part=p, absorbed_bytes=a) for p, a in zip(parts, absorbed, strict=True))


def _stage(group: WeightGroup, stage_of: Mapping[int, int], last: int) -> int:
    if group.layer is not None:
        return stage_of[group.layer]
    return 0 if group.part in ("embedding", "vision") else last


def _mtp_number(group: WeightGroup, config: ModelConfig) -> int:
    """MTP layers follow the others in the Hugging Face families and count from 0 in DeepSeek's own names."""
    layer = group.layer or 0
    return layer - config.num_hidden_layers if layer >= config.num_hidden_layers else layer


def _mlp_direction(name: str) -> str:
    if name.endswith(_MLP_COLUMNS):
        return "columns"
    return "rows" if name.endswith(_MLP_ROWS) else "whole"
