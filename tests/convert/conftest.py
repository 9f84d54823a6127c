"""Checkpoints with values in them: toys written header first, then filled tensor by tensor."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.toy import BITS, Toy, v3_toy

from seekserve.checkpoint.headers import read_header
from seekserve.convert import ConvertReport, ConvertRequest, convert

pytest.importorskip("torch")
AMPLE_BYTES = 2**40

# more than one block each way, no extent a multiple of 128
SHAPES: dict[str, Any] = {
    "hidden_size": 200,
    "intermediate_size": 330,
    "moe_intermediate_size": 140,
    "q_lora_rank": 129,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 65,
    "v_head_dim": 70,
}


def toy(**changes: Any) -> Toy:
    return v3_toy(**{**SHAPES, **changes})


def values(dtype: str, shape: tuple[int, ...], seed: int) -> bytes:
    """Plausible bytes: small normal numbers, any FP8 code but NaN, positive scales."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    if dtype == "F8_E4M3":
        codes = torch.randint(0, 0x7F, shape, generator=generator) + 0x80 * torch.randint(
            0, 2, shape, generator=generator
        )
        return bytes(codes.to(torch.uint8).numpy().tobytes())
    numbers = torch.randn(shape, generator=generator) * 0.02
    if dtype == "F32":
        numbers = numbers.abs() + 1e-4
    kinds = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
    return bytes(numbers.to(kinds[dtype]).reshape(-1).view(torch.uint8).numpy().tobytes())


def fill(folder: Path, special: dict[str, bytes] | None = None) -> Path:
    """Values for every tensor; `special` holds whole contents, or the beginnings of contents, by name."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("r+b") as file:
            for name, entry in read_header(path).tensors.items():
                file.seek(entry.begin_bytes)
                file.write(values(entry.dtype, entry.shape, random.Random(name).randrange(2**31)))
                if special and name in special:
                    file.seek(entry.begin_bytes)
                    file.write(special[name])
    return folder


def tensor_bytes(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """name -> dtype, shape, content, by our own reader."""
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        for name, entry in read_header(path).tensors.items():
            assert entry.end_bytes - entry.begin_bytes == math.prod(entry.shape) * BITS[entry.dtype] // 8
            out[name] = (entry.dtype, entry.shape, raw[entry.begin_bytes : entry.end_bytes])
    return out


def run(checkpoint: Path, out: Path, target: str, *, kernel: Any = None, **options: Any) -> ConvertReport:
    memory = options.pop("memory_free_bytes", AMPLE_BYTES)
    request = ConvertRequest(checkpoint=str(checkpoint), out=out, target=target, workers=2, **options)  # type: ignore[arg-type]
    return convert(request, memory_free_bytes=memory, kernel=kernel)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A bf16 checkpoint with an MTP layer."""
    return fill(toy(fp8=False, mtp_layers=1).write(tmp_path / "plain"))


@pytest.fixture
def fp8(tmp_path: Path) -> Path:
    return fill(toy(mtp_layers=1).write(tmp_path / "fp8"))


@pytest.fixture
def make_plain(tmp_path: Path) -> Callable[..., Path]:
    def make(special: dict[str, bytes] | None = None, **changes: Any) -> Path:
        return fill(toy(fp8=False, **changes).write(tmp_path / "plain"), special)

    return make
