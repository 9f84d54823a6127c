"""Tensors by name out of a checkpoint folder: index, safetensors shards, FP8 block weights made plain.

A weight's `weight_scale_inv` is found through the index in whatever shard it lies. Knows no model; what to ask for is
decided in `weights.py`. No pickle is ever read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ..port import EngineError

__all__ = ["SCALE_SUFFIX", "ShardReader", "WeightsError", "dequantize_blocks", "read_json"]

SCALE_SUFFIX = "_scale_inv"


class WeightsError(EngineError):
    """The checkpoint folder cannot become a model; the message names every fault that was found."""

    def __init__(self, folder: Path, problems: list[str]) -> None:
        super().__init__(f"{folder}: " + "; ".join(problems))
        self.problems = tuple(problems)


def dequantize_blocks(weight: torch.Tensor, scale: torch.Tensor, block_shape: tuple[int, int]) -> torch.Tensor:
    """float32 of a two-dimensional FP8 weight: each block times its scale, the last blocks may be partial."""
    rows, columns = weight.shape
    by_row = scale.float().repeat_interleave(block_shape[0], dim=0)[:rows]
    return weight.float() * by_row.repeat_interleave(block_shape[1], dim=1)[:, :columns]


class ShardReader:
    """Tensors by name out of the shards, dequantised; opens each shard once."""

    def __init__(self, folder: Path, config_json: Mapping[str, Any]) -> None:
        self._folder = folder
        self._open: dict[str, Any] = {}
        self.shard_of = self._shards()
        quantization = config_json.get("quantization_config") or {}
        block = quantization.get("weight_block_size")
        self._block_shape: tuple[int, int] | None = None if block is None else (int(block[0]), int(block[1]))

    def tensor(self, name: str) -> torch.Tensor:
        stored = self._stored(name)
        if stored.dtype != torch.float8_e4m3fn:
            return stored
        scale_name = name + SCALE_SUFFIX
        if self._block_shape is None or scale_name not in self.shard_of:
            missing = "quantization_config.weight_block_size" if self._block_shape is None else scale_name
            raise WeightsError(self._folder, [f"{name} is float8_e4m3fn but {missing} is absent"])
        scale = self._stored(scale_name)
        blocks = tuple(-(-size // block) for size, block in zip(stored.shape, self._block_shape, strict=False))
        if tuple(scale.shape) != blocks:
            raise WeightsError(
                self._folder, [f"{scale_name} has shape {list(scale.shape)}, {name} needs {list(blocks)} blocks"]
            )
        return dequantize_blocks(stored, scale, self._block_shape)

    def _stored(self, name: str) -> torch.Tensor:
        shard = self.shard_of[name]
        try:
            if shard not in self._open:
                self._open[shard] = safe_open(self._folder / shard, "pt")
            tensor: torch.Tensor = self._open[shard].get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise WeightsError(self._folder, [f"{name} cannot be read from {shard}: {error}"]) from error
        return tensor

    def _shards(self) -> dict[str, str]:
        index = self._folder / "model.safetensors.index.json"
        if index.is_file():
            weight_map = read_json(index, self._folder).get("weight_map")
            if not isinstance(weight_map, dict):
                raise WeightsError(self._folder, [f"{index.name} has no weight_map"])
            outside = sorted({str(shard) for shard in weight_map.values() if Path(str(shard)).name != shard})
            if outside:
                raise WeightsError(self._folder, [f"{index.name} names a shard outside the folder: {outside[0]}"])
            return dict(weight_map)
        single = "model.safetensors"
        try:
            self._open[single] = safe_open(self._folder / single, "pt")
        except (OSError, SafetensorError) as error:
            raise WeightsError(self._folder, [f"neither {index.name} nor a readable {single}: {error}"]) from error
        return dict.fromkeys(self._open[single].keys(), single)


def read_json(path: Path, folder: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(folder, [f"{path.name} cannot be read as JSON: {error}"]) from error
    if not isinstance(data, dict):
        raise WeightsError(folder, [f"{path.name} is not a JSON object"])
    return data
