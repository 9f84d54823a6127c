"""What an engine folder says about itself, typed; the shape of its config.json no longer matters here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["EngineFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What one engine folder says about itself; None where its file does not say it."""

    folder: Path
    shape: str
    """`build_config` (newer) or `builder_config` (older)."""
    version: str | None
    """TensorRT-LLM that built it; the older shape states none."""
    architecture: str | None
    dtype: str | None
    """`bf16`, `fp16`, `fp32`, or the file's own word."""
    quant_algo: str | None
    """`FP8`, `W4A16_AWQ`, ...; None: not quantised."""
    kv_dtype: str | None
    """`fp8_e4m3`, `bf16`, `fp16`, `int8`, ..."""
    tp: int
    pp: int
    world_size: int
    """Ranks: one engine file each."""
    moe_tp: int | None
    moe_ep: int | None
    max_batch_size: int
    max_seq_len_tokens: int
    max_num_tokens: int | None
    max_beam_width: int
    max_draft_tokens: int
    """Of speculative decoding; the builder has added it to `max_seq_len_tokens`."""
    kv_cache_type: str | None
    """`PAGED`, `CONTINUOUS` or `DISABLED`."""
    paged_context: bool
    """Paged context attention, without which there is neither KV reuse nor chunked context."""
    fp8_context: bool
    tokens_per_block: int | None
    engine_bytes: tuple[int | None, ...]
    """Size of each rank's engine file, in the order of ranks; None: not there."""
