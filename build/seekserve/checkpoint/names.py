"""The tensors of every family as tables with holes: name below a prefix, shape in named dimensions, part of the model.

Data only. `layout.py` says which table applies to which layers and fills the holes. Tables of V4 and V4.1 are in
`names_v4.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Row", "projections", "vectors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    shape: tuple[str | int, ...]
    """Names of dimensions (see `layout.dimensions`) or numbers."""
    part: str
    """embedding, head, attention, indexer, dense_mlp, router, routed_experts, shared_experts, norms, ..."""
    is_projection: bool = False
    """May be stored quantised, with a scale beside it."""
    is_parameter: bool = True
    """False for lookup tables and for copies of a tensor that is counted elsewhere."""
    is_optional: bool = False
    scale: str = "block"
    """How FP8 scales lie: `block` (rows and columns in blocks) or `row` (each row for itself)."""


def projections(part: str, **shapes: tuple[str, str]) -> tuple[Row, ...]:
    """Rows `<key>.weight` that may be quantised; `__` in a key stands for a dot."""
    return tuple(
        Row(name=f"{key.replace('__', '.')}.weight", shape=shape, part=part, is_projection=True)
        for key, shape in shapes.items()
    )


def vectors(part: str, extent: str, *names: str) -> tuple[Row, ...]:
    return tuple(Row(name=name, shape=(extent,), part=part) for name in names)


TOP: Final = (
    Row(name="model.embed_tokens.weight", shape=("vocab", "hidden"), part="embedding"),
    Row(name="model.norm.weight", shape=("hidden",), part="norms"),
)
HEAD: Final = (Row(name="lm_head.weight", shape=("vocab", "hidden"), part="head"),)

LAYER_NORMS: Final = vectors("norms", "hidden", "input_layernorm.weight", "post_attention_layernorm.weight")

# Multi-head and grouped-query attention: MoE-16B, Qwen2, Llama
GQA: Final = projections(
    "attention",
    self_attn__q_proj=("q_heads_dim", "hidden"),
    self_attn__k_proj=("kv_heads_dim", "hidden"),
    self_attn__v_proj=("kv_heads_dim", "hidden"),
    self_attn__o_proj=("hidden", "q_heads_dim"),
)
GQA_QKV_BIAS: Final = (
    *vectors("attention", "q_heads_dim", "self_attn.q_proj.bias"),
    *vectors("attention", "kv_heads_dim", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
)
GQA_OUT_BIAS: Final = vectors("attention", "hidden", "self_attn.o_proj.bias")

# Multi-head latent attention: the query is low-rank, or plain when q_lora_rank is null
MLA_LATENT: Final = (
    *projections(
        "attention",
        self_attn__kv_a_proj_with_mqa=("latent_dim", "hidden"),
        self_attn__kv_b_proj=("kv_up_dim", "kv_rank"),
        self_attn__o_proj=("hidden", "v_heads_dim"),
    ),
    *vectors("norms", "kv_rank", "self_attn.kv_a_layernorm.weight"),
)
MLA_LOW_RANK_QUERY: Final = (
    *projections("attention", self_attn__q_a_proj=("q_rank", "hidden"), self_attn__q_b_proj=("qk_heads_dim", "q_rank")),
    *vectors("norms", "q_rank", "self_attn.q_a_layernorm.weight"),
)
MLA_PLAIN_QUERY: Final = projections("attention", self_attn__q_proj=("qk_heads_dim", "hidden"))
MLA_BIAS: Final = (
    *vectors("attention", "latent_dim", "self_attn.kv_a_proj_with_mqa.bias"),
    *vectors("attention", "hidden", "self_attn.o_proj.bias"),
)
MLA_QUERY_BIAS: Final = vectors("attention", "q_rank", "self_attn.q_a_proj.bias")

# The sparse-attention indexer of V3.2
INDEXER: Final = (
    *projections(
        "indexer",
        self_attn__indexer__wq_b=("index_heads_dim", "q_rank"),
        self_attn__indexer__wk=("index_dim", "hidden"),
        self_attn__indexer__weights_proj=("index_heads", "hidden"),
    ),
    *vectors("indexer", "index_dim", "self_attn.indexer.k_norm.weight", "self_attn.indexer.k_norm.bias"),
)

DENSE_MLP: Final = projections(
    "dense_mlp",
    mlp__gate_proj=("intermediate", "hidden"),
    mlp__up_proj=("intermediate", "hidden"),
    mlp__down_proj=("hidden", "intermediate"),
)
DENSE_MLP_BIAS: Final = (
    *vectors("dense_mlp", "intermediate", "mlp.gate_proj.bias", "mlp.up_proj.bias"),
    *vectors("dense_mlp", "hidden", "mlp.down_proj.bias"),
)
ROUTER: Final = (Row(name="mlp.gate.weight", shape=("experts", "hidden"), part="router"),)
ROUTER_BIAS: Final = vectors("router", "experts", "mlp.gate.e_score_correction_bias")
EXPERT: Final = projections(
    "routed_experts",
    gate_proj=("moe_intermediate", "hidden"),
    up_proj=("moe_intermediate", "hidden"),
    down_proj=("hidden", "moe_intermediate"),
)
SHARED_EXPERTS: Final = projections(
    "shared_experts",
    mlp__shared_experts__gate_proj=("shared_intermediate", "hidden"),
    mlp__shared_experts__up_proj=("shared_intermediate", "hidden"),
    mlp__shared_experts__down_proj=("hidden", "shared_intermediate"),
)

# What an MTP layer has beside an ordinary one; embedding and head repeat those of the main model
MTP_EXTRAS: Final = (
    *vectors("mtp", "hidden", "enorm.weight", "hnorm.weight", "shared_head.norm.weight"),
    *projections("mtp", eh_proj=("hidden", "hidden_twice")),
    Row(name="shared_head.head.weight", shape=("vocab", "hidden"), part="mtp", is_parameter=False, is_optional=True),
    Row(name="embed_tokens.weight", shape=("vocab", "hidden"), part="mtp", is_parameter=False, is_optional=True),
)
