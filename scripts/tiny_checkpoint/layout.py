"""The files of a DeepSeek-V3 release in small: FP8 blocks, per-expert names, shards with an index.

Every two-dimensional projection becomes float8_e4m3fn plus `<name>_scale_inv` (float32, one per 128x128 block, edge
blocks included); embeddings, head, norms and the router stay bf16, the correction bias float32. A block that is all
zeros gets scale 1. One weight per cut lies in another shard than its scale, as it happens in the official files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BLOCK = 128
E4M3_MAX = 448.0
SHARDS = 4
KEPT_IN_BF16 = ("embed_tokens", "lm_head", "norm", "mlp.gate.weight")


def block_quantise(weight: Any) -> tuple[Any, Any]:
    """Return (float8_e4m3fn weight, float32 scale per 128x128 block): weight ~ quantised * scale."""
    import torch

    scale = block_amax(weight) / E4M3_MAX
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (weight.float() / spread(scale, weight.shape)).to(torch.float8_e4m3fn), scale


def block_dequantise(quantised: Any, scale: Any) -> Any:
    """Return the float32 weight."""
    import torch

    return quantised.to(torch.float32) * spread(scale, quantised.shape)


def block_amax(weight: Any) -> Any:
    """Return the largest magnitude of each block, edge blocks included."""
    import torch.nn.functional as functional

    rows, columns = weight.shape
    padded = functional.pad(weight.float().abs(), (0, -columns % BLOCK, 0, -rows % BLOCK))
    return padded.reshape(-(-rows // BLOCK), BLOCK, -(-columns // BLOCK), BLOCK).amax(dim=(1, 3))


def spread(scale: Any, shape: Any) -> Any:
    """Repeat each block's scale over the elements of that block, cut to `shape`."""
    rows, columns = shape
    return scale.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]


def is_quantised(name: str) -> bool:
    """Say whether the release format stores this tensor in FP8."""
    return name.endswith(".weight") and not any(part in name for part in KEPT_IN_BF16)


def split_experts(state: dict[str, Any]) -> dict[str, Any]:
    """Turn transformers' fused expert tensors (gate first, then up) into the per-expert names of the release."""
    named: dict[str, Any] = {}
    for name, tensor in state.items():
        prefix, fused, kind = name.partition(".experts.")
        if not fused or kind not in ("gate_up_proj", "down_proj"):
            named[name] = tensor
            continue
        for index, expert in enumerate(tensor):
            parts = {"down_proj": expert}
            if kind == "gate_up_proj":
                gate, up = expert.chunk(2, dim=0)
                parts = {"gate_proj": gate, "up_proj": up}
            named.update({f"{prefix}.experts.{index}.{part}.weight": value for part, value in parts.items()})
    return named


def fuse_experts(named: dict[str, Any]) -> dict[str, Any]:
    """Turn per-expert names back into transformers' fused expert tensors."""
    import torch

    state: dict[str, Any] = {}
    experts: dict[str, dict[int, dict[str, Any]]] = {}
    for name, tensor in named.items():
        prefix, per_expert, rest = name.partition(".experts.")
        if not per_expert:
            state[name] = tensor
            continue
        index, part, _ = rest.split(".")
        experts.setdefault(prefix, {}).setdefault(int(index), {})[part] = tensor
    for prefix, by_index in experts.items():
        ordered = [by_index[index] for index in range(len(by_index))]
        gate_up = [torch.cat([parts["gate_proj"], parts["up_proj"]]) for parts in ordered]
        state[f"{prefix}.experts.gate_up_proj"] = torch.stack(gate_up)
        state[f"{prefix}.experts.down_proj"] = torch.stack([parts["down_proj"] for parts in ordered])
    return state


def release_tensors(state: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of the FP8 release in file order, each scale right behind its weight."""
    import torch

    tensors: dict[str, Any] = {}
    for name, tensor in split_experts(state).items():
        if is_quantised(name):
            tensors[name], tensors[f"{name}_scale_inv"] = block_quantise(tensor)
        elif name.endswith("e_score_correction_bias"):
            tensors[name] = tensor.to(torch.float32)
        else:
            tensors[name] = tensor.to(torch.bfloat16)
    return tensors


def cut_into_shards(tensors: dict[str, Any]) -> list[dict[str, Any]]:
    """Cut near equal sizes, always between a weight and its scale."""
    target = sum(tensor.nbytes for tensor in tensors.values()) / SHARDS
    shards: list[dict[str, Any]] = [{}]
    for name, tensor in tensors.items():
        is_full = sum(t.nbytes for t in shards[-1].values()) >= target
        if is_full and name.endswith("_scale_inv") and len(shards) < SHARDS:
            shards.append({})
        shards[-1][name] = tensor
    return shards


def write_weights(state: dict[str, Any], folder: Path) -> None:
    """Write the shards and `model.safetensors.index.json`."""
    from safetensors.torch import save_file

    shards = cut_into_shards(release_tensors(state))
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in shard.items()}, folder / file_name, {"format": "pt"})
        weight_map.update(dict.fromkeys(shard, file_name))
    total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)


def read_release(folder: Path) -> dict[str, Any]:
    """Read every shard named by the index and return float32 (or stored) tensors by release name, scales applied."""
    from safetensors.torch import load_file

    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    raw: dict[str, Any] = {}
    for file_name in sorted(set(index["weight_map"].values())):
        raw.update(load_file(folder / file_name))
    return {
        name: block_dequantise(tensor, raw[f"{name}_scale_inv"]) if f"{name}_scale_inv" in raw else tensor.float()
        for name, tensor in raw.items()
        if not name.endswith("_scale_inv")
    }


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
