"""Tensor tables of DeepSeek-V4 and V4.1, whose releases use names of their own (`attn.wq_a`, `ffn.experts.3.w1`, ...).

Shapes follow the published headers. V4.1's sum over all rows is its published parameter count to the unit (tested).
"""

from __future__ import annotations

from typing import Final

from .names import Row, projections, vectors

TOP: Final = (
    Row(name="embed.weight", shape=("vocab", "hidden"), part="embedding"),
    Row(name="norm.weight", shape=("hidden",), part="norms"),
    Row(name="head.weight", shape=("vocab", "hidden"), part="head"),
)
HYPER_HEAD: Final = (
    Row(name="hc_head_fn", shape=("hc", "hc_hidden"), part="hyper_connections"),
    Row(name="hc_head_base", shape=("hc",), part="hyper_connections"),
    Row(name="hc_head_scale", shape=(1,), part="hyper_connections"),
)
HYPER: Final = tuple(
    Row(name=f"hc_{where}_{name}", shape=shape, part="hyper_connections")
    for where in ("attn", "ffn")
    for name, shape in (("fn", ("hc_mix", "hc_hidden")), ("base", ("hc_mix",)), ("scale", (3,)))
)
LAYER_NORMS: Final = vectors("norms", "hidden", "attn_norm.weight", "ffn_norm.weight")
ATTENTION: Final = (
    *projections(
        "attention",
        attn__wq_a=("q_rank", "hidden"),
        attn__wq_b=("q_heads_dim", "q_rank"),
        attn__wkv=("head_dim", "hidden"),
        attn__wo_a=("o_groups_rank", "o_group_in"),
        attn__wo_b=("hidden", "o_groups_rank"),
    ),
    *vectors("norms", "q_rank", "attn.q_norm.weight"),
    *vectors("norms", "head_dim", "attn.kv_norm.weight"),
    Row(name="attn.attn_sink", shape=("heads",), part="attention"),
)


def compressor(prefix: str, part: str, width: str, ratio: int) -> tuple[Row, ...]:
    """V4's pooling of `ratio` tokens into one row, with its position table; `width` is the width before the norm."""
    norm_width = {"head_dim_twice": "head_dim", "index_dim_twice": "index_dim"}.get(width, width)
    return (
        *(Row(name=f"{prefix}.{name}.weight", shape=(width, "hidden"), part=part) for name in ("wkv", "wgate")),
        Row(name=f"{prefix}.ape", shape=(ratio, width), part=part),
        Row(name=f"{prefix}.norm.weight", shape=(norm_width,), part=part),
    )


INDEXER_QUERY: Final = (
    *projections("indexer", attn__indexer__wq_b=("index_heads_dim", "q_rank")),
    Row(name="attn.indexer.weights_proj.weight", shape=("index_heads", "hidden"), part="indexer"),
)
# Ratio 4 attends sparsely (overlapping windows, hence twice the width, and an indexer); ratio 128 densely.
SPARSE: Final = (
    *compressor("attn.compressor", "compressor", "head_dim_twice", 4),
    *compressor("attn.indexer.compressor", "indexer", "index_dim_twice", 4),
    *INDEXER_QUERY,
)
HEAVY: Final = compressor("attn.compressor", "compressor", "head_dim", 128)

ROUTER: Final = (Row(name="ffn.gate.weight", shape=("experts", "hidden"), part="router"),)
ROUTER_HASH: Final = (
    Row(name="ffn.gate.tid2eid", shape=("vocab", "active_experts"), part="router", is_parameter=False),
)
ROUTER_BIAS: Final = vectors("router", "experts", "ffn.gate.bias")
EXPERT: Final = projections(
    "routed_experts",
    w1=("moe_intermediate", "hidden"),
    w2=("hidden", "moe_intermediate"),
    w3=("moe_intermediate", "hidden"),
)
SHARED_EXPERTS: Final = projections(
    "shared_experts",
    ffn__shared_experts__w1=("shared_intermediate", "hidden"),
    ffn__shared_experts__w2=("hidden", "shared_intermediate"),
    ffn__shared_experts__w3=("shared_intermediate", "hidden"),
)
MTP_EXTRAS: Final = (
    *projections("mtp", e_proj=("hidden", "hidden"), h_proj=("hidden", "hidden")),
    *vectors("mtp", "hidden", "enorm.weight", "hnorm.weight", "norm.weight"),
    *HYPER_HEAD,
)

# V4.1: image and text have separate router biases; keys come from one of four compressors
ROUTER_V41: Final = (*ROUTER, *ROUTER_BIAS, *vectors("router", "experts", "ffn.gate.bias_vl"))
COMPRESSOR_V41: Final = (
    Row(name="attn.compressor.wkv.weight", shape=("head_dim", "hidden"), part="compressor"),
    Row(name="attn.compressor.norm.weight", shape=("head_dim",), part="compressor"),
    Row(name="attn.indexer.wk.weight", shape=("index_dim", "head_dim"), part="indexer"),
    Row(name="attn.indexer.k_norm.weight", shape=("index_dim",), part="indexer"),
)
COMPRESSOR_GATE_V41: Final = (
    Row(name="attn.compressor.wgate.weight", shape=("head_dim", "hidden"), part="compressor"),
)
ENGRAM_MIX: Final = (
    *projections("engram_projections", engram__wkv=("engram_out", "engram_in")),
    Row(name="engram.q_weight", shape=("hc", "hidden"), part="engram_projections"),
    Row(name="engram.k_weight", shape=("hc", "hidden"), part="engram_projections"),
)
ENGRAM_TABLE: Final = (
    Row(
        name="engram.embed.weight",
        shape=("engram_rows", "engram_dim"),
        part="engram_tables",
        is_projection=True,
        scale="row",
    ),
)
DRAFT_ENTRY: Final = (
    *vectors("mtp", "hidden", "main_norm.weight"),
    *projections("mtp", main_proj=("hidden", "draft_in")),
)
DRAFT_EXIT: Final = (
    *vectors("mtp", "hidden", "norm.weight"),
    Row(name="markov_head.embed.weight", shape=("vocab", "markov_rank"), part="mtp"),
    Row(name="markov_head.head.weight", shape=("vocab", "markov_rank"), part="mtp"),
    Row(name="confidence_head.proj.weight", shape=(1, "confidence_in"), part="mtp"),
)
IMAGE_TOKENS: Final = vectors("vision", "hidden", "image_start", "image_end", "image_newline")
VISION_TOP: Final = (
    Row(name="vision.patch_embed.proj.weight", shape=("v_hidden", "v_patch"), part="vision"),
    *vectors("vision", "v_hidden", "vision.patch_embed.proj.bias", "vision.norm.weight"),
    Row(name="aligner.w1.weight", shape=("hidden", "v_unshuffled"), part="vision"),
    Row(name="aligner.w2.weight", shape=("hidden", "hidden"), part="vision"),
    *vectors("vision", "hidden", "aligner.w1.bias", "aligner.w2.bias"),
)
VISION_BLOCK: Final = (
    Row(name="attn.wqkv.weight", shape=("v_qkv", "v_hidden"), part="vision"),
    *vectors("vision", "v_qkv", "attn.wqkv.bias"),
    Row(name="attn.wo.weight", shape=("v_hidden", "v_hidden"), part="vision"),
    *vectors("vision", "v_hidden", "attn.wo.bias", "norm1.weight", "norm2.weight"),
    Row(name="mlp.w1.weight", shape=("v_gated", "v_hidden"), part="vision"),
    Row(name="mlp.w2.weight", shape=("v_hidden", "v_intermediate"), part="vision"),
)
