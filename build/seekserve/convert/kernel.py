"""The two directions as torch computes them fast: panels of 128 rows, tiles that stay in cache, no temporary arrays.

One kernel object per thread, since it owns its buffers. Results equal `formula` bit by bit. Values that are not finite
are the caller's to find: they make the scale (or the dequantised value) not finite, never a plausible number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from .formula import BLOCK, E4M3_MAX

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Dequantiser", "Quantise", "TorchQuantiser"]

_TILE_ELEMENTS: Final = 128 * 1024  # 512 KiB of float32: within a core's second-level cache
_E4M3_NAN: Final = 0x7F
_EXPONENT_SHIFT: Final = 256.0
_NOT_FINITE: Final = 0x7F80


class Quantise(Protocol):
    def __call__(self, weight: Tensor, codes: Tensor, scales: Tensor) -> None:
        """`weight` holds whole panels (the last may be short); fills uint8 `codes` and float32 `scales`."""


class TorchQuantiser:
    name = "torch"

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._wide = torch.empty(_TILE_ELEMENTS, dtype=torch.float32)
        self._magnitudes = torch.empty(0, dtype=torch.int16)
        self._tiny = torch.finfo(torch.float32).tiny

    def __call__(self, weight: Tensor, codes: Tensor, scales: Tensor) -> None:
        columns = weight.shape[1]
        self._scales_of(weight, scales)
        divisors = scales.repeat_interleave(BLOCK, 1)[:, :columns]
        # only a subnormal scale is coarse enough for a quotient that would round beyond 448
        is_coarse = bool((scales < self._tiny).any())
        floats = codes.view(self._torch.float8_e4m3fn)
        if columns > self._wide.numel():
            self._wide = self._torch.empty(columns, dtype=self._torch.float32)
        step = max(1, min(BLOCK, _TILE_ELEMENTS // max(1, columns)))
        for number, first in enumerate(range(0, weight.shape[0], BLOCK)):
            end = min(first + BLOCK, weight.shape[0])
            for start in range(first, end, step):
                rows = slice(start, min(start + step, end))
                self._divide_and_round(weight[rows], divisors[number], floats[rows], is_coarse=is_coarse)

    def _scales_of(self, weight: Tensor, out: Tensor) -> None:
        torch = self._torch
        columns = weight.shape[1]
        tops = torch.zeros(out.shape[0], out.shape[1] * BLOCK)
        for number, start in enumerate(range(0, weight.shape[0], BLOCK)):
            tops[number, :columns] = self._column_tops(weight[start : start + BLOCK])
        torch.div(tops.view(*out.shape, BLOCK).amax(2), E4M3_MAX, out=out)
        out.masked_fill_(out == 0, 1.0)

    def _column_tops(self, panel: Tensor) -> Tensor:
        if panel.dtype == self._torch.float32:
            return panel.abs().amax(0)
        # magnitudes of 16-bit floats are ordered as integers, infinity and NaN on top: half the bytes, no widening
        if self._magnitudes.numel() < panel.numel():
            self._magnitudes = self._torch.empty(panel.numel(), dtype=self._torch.int16)
        magnitudes = self._magnitudes[: panel.numel()].view(panel.shape)
        self._torch.bitwise_and(panel.view(self._torch.int16), 0x7FFF, out=magnitudes)
        return magnitudes.amax(0).view(panel.dtype)

    def _divide_and_round(self, tile: Tensor, divisor: Tensor, floats: Tensor, *, is_coarse: bool) -> None:
        wide = self._wide[: tile.numel()].view(tile.shape)
        wide.copy_(tile)
        wide.div_(divisor)
        if is_coarse:
            wide.clamp_(-E4M3_MAX, E4M3_MAX)
        floats.copy_(wide)


class Dequantiser:
    """FP8 codes to bfloat16. Goes through float16, whose conversion is one instruction where FP8's is a table."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._narrow = torch.empty(_TILE_ELEMENTS, dtype=torch.int16)
        self._wide = torch.empty(_TILE_ELEMENTS, dtype=torch.float32)

    def __call__(self, codes: Tensor, scales: Tensor, out: Tensor) -> bool:
        """`scales` is [1, columns], [rows, 1] or [1, 1]. False when a code or a product is not finite."""
        rows, columns = codes.shape
        if columns > self._wide.numel():
            self._narrow = self._torch.empty(columns, dtype=self._torch.int16)
            self._wide = self._torch.empty(columns, dtype=self._torch.float32)
        step = max(1, _TILE_ELEMENTS // max(1, columns))
        per_row = scales.dim() == 2 and scales.shape[0] > 1
        shifted = scales * _EXPONENT_SHIFT
        fits = bool(shifted.isfinite().all())
        is_finite = True
        for start in range(0, rows, step):
            part = slice(start, start + step)
            factors = (shifted if fits else scales)[part if per_row else slice(None)]
            is_finite = self._tile(codes[part], factors, out[part], is_shifted=fits) and is_finite
        return is_finite

    def _tile(self, codes: Tensor, scales: Tensor, out: Tensor, *, is_shifted: bool) -> bool:
        torch, count = self._torch, codes.numel()
        if count == 0:
            return True
        has_nan = int((codes & _E4M3_NAN).amax()) == _E4M3_NAN
        bits = self._narrow[:count].view(codes.shape)
        # sign, 4 exponent bits, 3 fraction bits -> the same fields of a float16, which then reads as value / 256
        bits.copy_(codes.view(torch.int8))
        bits.bitwise_left_shift_(7).bitwise_and_(~0x4000)
        wide = self._wide[:count].view(codes.shape)
        wide.copy_(bits.view(torch.float16))
        if not is_shifted:
            wide.mul_(_EXPONENT_SHIFT)
        wide.mul_(scales)
        out.copy_(wide)
        return not has_nan and int((out.view(torch.int16) & 0x7FFF).amax()) < _NOT_FINITE
