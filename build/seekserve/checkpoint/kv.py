"""KV cache bytes of a model, pure functions of its config: per token, and fixed per request.

One replica, all its layers; a pipeline stage passes its own `layers`. Latent caches are the same on every TP rank, head
caches are divided by TP: `is_divided_by_tp`. Integer divisions are those of the engines' block layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from .config import ModelConfig
from .layout import LATENT

__all__ = ["INDEXER_DTYPES", "KV_LANE_BYTES", "KvCost", "kv_cost"]

KV_LANE_BYTES: Final = {
    "fp32": Fraction(4),
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "fp8_e4m3": Fraction(1),
    "nvfp4": Fraction(9, 16),  # half a byte, and one scale byte per 16 lanes
}
INDEXER_DTYPES: Final = ("fp8", "fp4")
_FP32_BYTES: Final = 4
_STATE_BLOCK_TOKENS: Final = 128
"""V4's compressor windows are rounded up to one cache block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCost:
    per_token_bytes: int
    per_request_window_bytes: int
    """Sliding window of V4 and V4.1, held for the whole life of a request."""
    per_request_state_bytes: int
    """V4's fp32 compressor state; not established for V4.1 and left at 0 there."""
    is_divided_by_tp: bool

    @property
    def per_request_bytes(self) -> int:
        return self.per_request_window_bytes + self.per_request_state_bytes


def kv_cost(
    config: ModelConfig,
    architecture: str,
    kv_dtype: str,
    *,
    indexer_dtype: str = "fp8",
    layers: range | None = None,
    mtp_layers: int = 0,
) -> KvCost:
    """`mtp_layers` are those that run (each keeps a cache), not those in the checkpoint."""
    lane = KV_LANE_BYTES[kv_dtype]
    stage = range(config.num_hidden_layers) if layers is None else layers
    if architecture == "deepseek_v4":
        return _v4(config, lane, indexer_dtype, stage, mtp_layers)
    if architecture == "deepseek_v41":
        return _v41(config, lane, indexer_dtype, stage, mtp_layers)
    count = len(stage) + mtp_layers
    if architecture not in LATENT:
        return _per_token(int(2 * count * config.num_key_value_heads * config.head_dim * lane), is_divided=True)
    latent = config.integer("kv_lora_rank") + config.integer("qk_rope_head_dim")
    per_token = int(count * latent * lane)
    if architecture == "deepseek_v32":
        per_token += count * _indexer_row_bytes(config, indexer_dtype)
    return _per_token(per_token, is_divided=False)


def _per_token(size_bytes: int, *, is_divided: bool) -> KvCost:
    return KvCost(
        per_token_bytes=size_bytes, per_request_window_bytes=0, per_request_state_bytes=0, is_divided_by_tp=is_divided
    )


def _indexer_row_bytes(config: ModelConfig, indexer_dtype: str) -> int:
    """Always 8-bit (or 4-bit) keys with a 4-byte scale per 128 elements, whatever the KV dtype."""
    extent = config.integer("index_head_dim")
    lanes = {"fp8": extent, "fp4": extent // 2}[indexer_dtype]
    return lanes + _FP32_BYTES * -(-extent // 128)


def _v4(config: ModelConfig, lane: Fraction, indexer_dtype: str, stage: range, mtp_layers: int) -> KvCost:
    """Ratios beyond the layers belong to MTP or draft layers, which keep only a window."""
    all_ratios = config.integers("compress_ratios")
    ratios = [all_ratios[layer] for layer in stage]
    row = config.head_dim * lane
    sparse, heavy = ratios.count(4), ratios.count(128)
    index_bytes = _indexer_row_bytes(config, indexer_dtype)
    per_token = sparse * (int(row) // 4 + index_bytes // 4) + heavy * (int(row) // 128)
    window = (len(stage) + mtp_layers) * config.integer("sliding_window") * int(row)
    # keys and scores of the window that is still open: two per lane; sparse layers pool overlapping windows
    sparse_state = 4 * (config.head_dim + config.integer("index_head_dim")) * _FP32_BYTES
    heavy_state = 2 * config.head_dim * _FP32_BYTES
    state = _STATE_BLOCK_TOKENS * (sparse * sparse_state + heavy * heavy_state)
    return KvCost(
        per_token_bytes=per_token,
        per_request_window_bytes=window,
        per_request_state_bytes=state,
        is_divided_by_tp=False,
    )


def _v41(config: ModelConfig, lane: Fraction, indexer_dtype: str, stage: range, mtp_layers: int) -> KvCost:
    """Only the source layers write a compressed cache; every other layer reads one of theirs."""
    ratios = config.integers("compress_ratios")
    row = int(config.head_dim * lane)
    per_token = Fraction(0)
    for layer in config.integers("kv_source_layer_ids"):
        if layer in stage and ratios[layer] > 0:
            per_token += Fraction(row + _indexer_row_bytes(config, indexer_dtype), ratios[layer])
    window = (len(stage) + mtp_layers) * config.integer("sliding_window") * row
    return KvCost(
        per_token_bytes=int(per_token),
        per_request_window_bytes=window,
        per_request_state_bytes=0,
        is_divided_by_tp=False,
    )
