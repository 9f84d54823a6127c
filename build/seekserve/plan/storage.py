"""How a projection is stored: bits per element and the scales beside it, so that bytes of any piece can be counted.

Pure arithmetic. A piece of a tensor has the scales of its own edge blocks, as an engine allocates them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["BF16", "FP32", "KINDS", "Storage", "kind_of_experts", "storage_of_kind"]


@dataclass(frozen=True, slots=True)
class Storage:
    bits: int
    scale_bytes: int = 0
    """Of one scale; 0 = none."""
    scale_block: tuple[int, int] | None = None
    """Elements that share a scale, rows x columns; None = one for the whole tensor. A 0 means the whole extent."""
    constant_bytes: int = 0
    """Second-level scales, one each for the whole tensor."""

    def size_bytes(self, rows: int, columns: int) -> int:
        size = -(-rows * columns * self.bits // 8) + self.constant_bytes
        if not self.scale_bytes:
            return size
        if self.scale_block is None:
            return size + self.scale_bytes
        tall, wide = self.scale_block
        return size + self.scale_bytes * -(-rows // (tall or rows)) * -(-columns // (wide or columns))


BF16: Final = Storage(16)
FP32: Final = Storage(32)

KINDS: Final[Mapping[str, Storage]] = {
    "bf16": BF16,
    "fp16": BF16,
    "fp32": FP32,
    "fp8_block": Storage(8, 4, (128, 128)),
    "fp8_tensor": Storage(8, 4, None, 4),
    "fp8_channel": Storage(8, 4, (1, 0)),
    "int8": Storage(8, 4, (1, 0)),
    "nvfp4": Storage(4, 1, (1, 16), 8),
    "mxfp4": Storage(4, 1, (1, 32)),
    "w4afp8": Storage(4, 2, (1, 128), 8),
    "w4a8_awq": Storage(4, 2, (1, 128), 8),
}
"""By the words of `checkpoint` for the precision of projections."""


def storage_of_kind(kind: str, block: tuple[int, int] | None = None) -> Storage | None:
    """None for a kind whose bytes are not known from its name (`mixed`, foreign methods)."""
    if kind == "fp8_block" and block is not None:
        return Storage(8, 4, block)
    return KINDS.get(kind)


def kind_of_experts(kind: str, expert_kind: str | None) -> tuple[str, str]:
    """(kind of routed experts, kind of the other projections). W4AFP8 quantises the experts, the rest is FP8 blocks."""
    if kind == "w4afp8":
        return "w4afp8", "fp8_block"
    return expert_kind or kind, kind
