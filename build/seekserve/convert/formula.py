"""The definition of the FP8 block format, in plain torch; every faster way is held against it bit by bit.

scale = amax / 448 of each 128x128 block (float32; a quotient of zero means 1), code = w / scale in float32, clamped to
+-448 and rounded as torch rounds to float8_e4m3fn. Weight = code * scale in float32, rounded once to bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BLOCK", "E4M3_MAX", "blocks_in", "dequantise_exactly", "quantise_exactly", "spread"]

BLOCK: Final = 128
E4M3_MAX: Final = 448.0


def blocks_in(extent: int, block: int = BLOCK) -> int:
    return -(-extent // block)


def quantise_exactly(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(codes as uint8, float32 scales) of a whole matrix."""
    import torch
    from torch.nn.functional import pad

    rows, columns = weight.shape
    wide = weight.float()
    tiles = pad(wide.abs(), (0, -columns % BLOCK, 0, -rows % BLOCK)).reshape(
        blocks_in(rows), BLOCK, blocks_in(columns), BLOCK
    )
    scales = tiles.amax(dim=(1, 3)) / E4M3_MAX
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    codes = (wide / spread(scales, rows, columns)).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return codes.view(torch.uint8), scales


def dequantise_exactly(codes: Tensor, scales: Tensor) -> Tensor:
    """The float32 products; `scales` is [blocks, blocks], or broadcasts against the codes."""
    import torch

    return codes.view(torch.float8_e4m3fn).float() * scales


def spread(scales: Tensor, rows: int, columns: int, block: tuple[int, int] = (BLOCK, BLOCK)) -> Tensor:
    """Each block's scale over the elements of that block, edge blocks cut."""
    return scales.repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :columns]
