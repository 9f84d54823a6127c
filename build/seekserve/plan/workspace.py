"""Activation workspace of one rank as a function of the tokens in a step: which buffer, how large, by which formula.

An estimate from the shapes of the largest buffers, all of them counted as live at once. It is charged before the cache
gets the rest, as the engine's own profiling run does it.
"""

from __future__ import annotations

from dataclasses import dataclass

from seekserve.checkpoint import ModelConfig
from seekserve.checkpoint.layout import LATENT

from .shape import Shape
from .sharding import kv_heads_on_rank, mlp_tp

__all__ = ["Buffer", "activation_buffers"]

_BF16 = 2
_FP32 = 4
_HIDDEN_COPIES = 6
"""Residual, its norm, input and output of attention and of the MLP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    name: str
    size_bytes: int
    formula: str


def activation_buffers(
    config: ModelConfig,
    architecture: str,
    precision: str,
    shape: Shape,
    *,
    max_num_tokens: int,
    max_batch_size: int,
    gpus_per_node: int,
) -> tuple[Buffer, ...]:
    """`max_num_tokens` and `max_batch_size` are those of one rank."""
    hidden = _HIDDEN_COPIES * max_num_tokens * config.hidden_size * _BF16
    buffers = [
        Buffer(
            name="hidden states",
            size_bytes=hidden,
            formula=f"{_HIDDEN_COPIES} x {max_num_tokens} tokens x {config.hidden_size} x 2 B",
        ),
        _attention(config, architecture, shape, max_num_tokens),
    ]
    dense = config.integer("intermediate_size", 0)
    if dense:
        width = -(-dense // mlp_tp(dense, shape, gpus_per_node, 1))
        buffers.append(
            Buffer(
                name="dense MLP",
                size_bytes=3 * max_num_tokens * width * _BF16,
                formula=f"3 x {max_num_tokens} tokens x {width} x 2 B",
            )
        )
    if config.n_routed_experts:
        buffers.append(_experts(config, precision, shape, max_num_tokens))
    buffers.append(
        Buffer(
            name="logits",
            size_bytes=2 * max_batch_size * config.vocab_size * _FP32,
            formula=f"2 x {max_batch_size} requests x {config.vocab_size} x 4 B",
        )
    )
    return tuple(buffers)


def _attention(config: ModelConfig, architecture: str, shape: Shape, tokens: int) -> Buffer:
    heads = -(-config.num_attention_heads // shape.attention_tp)
    get = config.integer
    if architecture in LATENT:
        lanes = heads * (2 * (get("qk_nope_head_dim") + get("qk_rope_head_dim")) + 2 * get("v_head_dim"))
        what = "query, unfolded key and value, output"
    elif architecture.startswith("deepseek_v4"):
        lanes, what = 2 * heads * config.head_dim, "query, output"
    else:
        lanes = 2 * (heads + kv_heads_on_rank(config, shape)) * config.head_dim
        what = "query, key, value, output"
    return Buffer(
        name="attention",
        size_bytes=tokens * lanes * _BF16,
        formula=f"{tokens} tokens x {lanes} lanes ({what}) x 2 B",
    )


def _experts(config: ModelConfig, precision: str, shape: Shape, max_num_tokens: int) -> Buffer:
    """The fused kernel's buffers are made for the worst case, in which every chosen expert is on this rank."""
    tokens = max_num_tokens * (shape.tp if shape.attention_dp else 1)
    rows = tokens * config.num_experts_per_tok
    lane = _BF16 if precision in ("bf16", "fp16", "fp32") else 1
    width = config.integer("moe_intermediate_size") // shape.moe_tp
    per_row = config.hidden_size * (lane + _BF16) + width * (2 * _BF16 + lane)
    ranks = f"{shape.tp} ranks x " if shape.attention_dp else ""
    return Buffer(
        name="experts",
        size_bytes=rows * per_row,
        formula=f"{ranks}{max_num_tokens} tokens x {config.num_experts_per_tok} experts x {per_row} B",
    )
