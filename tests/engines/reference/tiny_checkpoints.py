"""The tiny models as folders in the layout and formats of DeepSeek's releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tiny_models import CONFIGS, make_model

BLOCK = (24, 20)  # odd on purpose: most weights end in partial blocks


def checkpoint_tensors(name: str) -> dict[str, Any]:
    """By the names that DeepSeek's files use: experts one by one."""
    out: dict[str, Any] = {}
    for key, tensor in make_model(name).state_dict().items():
        if key.endswith("experts.gate_up_proj"):
            for i, both in enumerate(tensor):
                prefix = key.removesuffix("gate_up_proj") + str(i)
                out[f"{prefix}.gate_proj.weight"], out[f"{prefix}.up_proj.weight"] = both.chunk(2)
        elif key.endswith("experts.down_proj"):
            for i, one in enumerate(tensor):
                out[f"{key.removesuffix('down_proj')}{i}.down_proj.weight"] = one
        else:
            out[key] = tensor
    return {key: tensor.contiguous().clone() for key, tensor in out.items()}


def quantize(weight: Any) -> tuple[Any, Any]:
    """FP8 e4m3 with one scale per block, as DeepSeek releases it."""
    rows, columns = weight.shape
    scale = torch.ones(-(-rows // BLOCK[0]), -(-columns // BLOCK[1]))
    out = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            part = (slice(i * BLOCK[0], (i + 1) * BLOCK[0]), slice(j * BLOCK[1], (j + 1) * BLOCK[1]))
            scale[i, j] = weight[part].abs().max() / 448
            out[part] = (weight[part] / scale[i, j]).to(torch.float8_e4m3fn)
    return out, scale


def write(folder: Path, name: str, tensors: dict[str, Any], **config: Any) -> Path:
    """Two shards; a scale lies in the other shard than its weight."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIGS[name], "auto_map": {"AutoModel": "x.Y"}, **config}))
    weight_map = {
        key: f"model-0000{1 + (i % 2 if not key.endswith('_scale_inv') else 1)}-of-00002.safetensors"
        for i, key in enumerate(tensors)
    }
    for shard in sorted(set(weight_map.values())):
        save_file({key: tensors[key] for key, where in weight_map.items() if where == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def fp8_tensors(name: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, tensor in checkpoint_tensors(name).items():
        out[key] = tensor
        if key.endswith("_proj.weight"):
            out[key], out[key + "_scale_inv"] = quantize(tensor)
    return out


QUANTIZED = {
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(BLOCK)},
}
