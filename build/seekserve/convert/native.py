"""The quantising pass in C, compiled on this machine when it has a compiler: one read and one write of every element.

An accelerator only: no compiler, a failed compilation or a single differing bit in the self-test, and `kernel` is used.
The library is built in a private temporary folder, loaded and removed; nothing is kept on disk.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .formula import quantise_exactly
from .kernel import TorchQuantiser

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["NativeQuantiser", "load_library", "quantiser"]

_COMPILERS: Final = ("cc", "gcc", "clang")
_COMPILE_LIMIT_S: Final = 60
_FLAGS: Final = ("-O3", "-fPIC", "-shared", "-std=c99", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_CODE: Final = r"""
#include <stdint.h>
#include <string.h>

#define BLOCK 128
#define STRIP 2048 /* columns at once: 128 rows of them stay in a core's cache for the second pass */

static inline float as_float(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }
static inline uint32_t as_bits(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }

/* |value| + 2^(e+20) has the ulp of an e4m3 number with exponent e, so the one rounding of the sum is the rounding
   to e4m3, ties to even; below 2^-6 the exponent stays and the codes become those of the subnormals. */
static inline uint8_t encode(float value) {
    uint32_t bits = as_bits(value), magnitude = bits & 0x7fffffffu;
    uint32_t exponent = magnitude & 0x7f800000u;
    exponent = exponent < 0x3c800000u ? 0x3c800000u : exponent;
    uint32_t magic = exponent + (20u << 23);
    uint32_t sum = as_bits(as_float(magnitude) + as_float(magic));
    uint32_t code = sum - magic + (exponent >> 20) - 968u;
    code = code > 0x7eu ? 0x7eu : code;
    return (uint8_t)(code | ((bits >> 24) & 0x80u));
}

/* Rows one behind the other, since a processor fetches ahead along rows and not down columns. */
static void block_scales(const uint16_t *w, long rows, long stride, long width, float *scales) {
    uint16_t top[STRIP] = {0};
    for (long r = 0; r < rows; ++r) {
        const uint16_t *row = w + r * stride;
        for (long c = 0; c < width; ++c) {
            uint16_t magnitude = row[c] & 0x7fff;
            top[c] = top[c] < magnitude ? magnitude : top[c];
        }
    }
    for (long start = 0; start < width; start += BLOCK) {
        long end = start + BLOCK < width ? start + BLOCK : width;
        uint16_t amax = 0;
        for (long c = start; c < end; ++c) amax = amax < top[c] ? top[c] : amax;
        float scale = as_float((uint32_t)amax << 16) / 448.0f;
        scales[start / BLOCK] = scale == 0.0f ? 1.0f : scale;
    }
}

static void encode_row(const uint16_t *row, long width, const float *scales, uint8_t *out) {
    for (long start = 0; start < width; start += BLOCK) {
        long end = start + BLOCK < width ? start + BLOCK : width;
        float scale = scales[start / BLOCK];
        for (long c = start; c < end; ++c) out[c] = encode(as_float((uint32_t)row[c] << 16) / scale);
    }
}

void quantise_bf16(const uint16_t *w, long rows, long columns, uint8_t *codes, float *scales) {
    long blocks = (columns + BLOCK - 1) / BLOCK;
    for (long first = 0; first < rows; first += BLOCK) {
        long height = rows - first < BLOCK ? rows - first : BLOCK;
        for (long start = 0; start < columns; start += STRIP) {
            long width = columns - start < STRIP ? columns - start : STRIP;
            const uint16_t *strip = w + first * columns + start;
            float *mine = scales + first / BLOCK * blocks + start / BLOCK;
            block_scales(strip, height, columns, width, mine);
            for (long r = 0; r < height; ++r)
                encode_row(strip + r * columns, width, mine, codes + (first + r) * columns + start);
        }
    }
}
"""


class NativeQuantiser:
    """As `TorchQuantiser`; what is not bfloat16 goes to torch."""

    def __init__(self, library: ctypes.CDLL) -> None:
        import torch

        self.name = "native"
        self._run = library.quantise_bf16
        self._torch_quantise = TorchQuantiser()
        self._bfloat16 = torch.bfloat16

    def __call__(self, weight: Tensor, codes: Tensor, scales: Tensor) -> None:
        if weight.dtype != self._bfloat16:
            self._torch_quantise(weight, codes, scales)
            return
        rows, columns = weight.shape
        # ctypes lets go of the interpreter lock, so threads run side by side
        self._run(weight.data_ptr(), rows, columns, codes.data_ptr(), scales.data_ptr())


def quantiser() -> NativeQuantiser | TorchQuantiser:
    """A kernel for one thread: the compiled one where it can be had."""
    library = load_library()
    return TorchQuantiser() if library is None else NativeQuantiser(library)


@functools.cache
def load_library() -> ctypes.CDLL | None:
    compiler = next((path for path in map(shutil.which, _COMPILERS) if path), None)
    if compiler is None:
        return None
    library = _compile(compiler, ("-march=native",)) or _compile(compiler, ())
    if library is None:
        return None
    library.quantise_bf16.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    library.quantise_bf16.restype = None
    return library if _is_exact(NativeQuantiser(library)) else None


def _compile(compiler: str, extra: tuple[str, ...]) -> ctypes.CDLL | None:
    with tempfile.TemporaryDirectory(prefix="seekserve-kernel-") as folder:
        source, target = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        source.write_text(_CODE, encoding="utf-8")
        command = [compiler, *_FLAGS, *extra, "-o", str(target), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_COMPILE_LIMIT_S, check=False)
            return ctypes.CDLL(str(target)) if done.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired):
            return None


def _is_exact(kernel: NativeQuantiser) -> bool:
    """Every bfloat16 there is, in blocks of one to sixteen binades, at ordinary, huge and subnormal scales."""
    import torch

    finite = torch.arange(0x7F80, dtype=torch.int32)
    both = torch.cat([finite, finite + 0x8000]).to(torch.int16).view(torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(300, 333, generator=generator)
    samples = [both.reshape(-1, 255), both[torch.randperm(both.numel(), generator=generator)].reshape(-1, 340)]
    samples += [(noise * scale).to(torch.bfloat16) for scale in (0.02, 1e36, 1e-38, 3e-41, 448.0)]
    for sample in samples:
        weight = sample.contiguous()
        codes, scales = quantise_exactly(weight)
        mine, my_scales = torch.empty_like(codes), torch.empty_like(scales)
        kernel(weight, mine, my_scales)
        if not (torch.equal(codes, mine) and torch.equal(scales, my_scales)):
            return False
    return True
