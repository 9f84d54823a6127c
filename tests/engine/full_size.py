"""Full-size checkpoints of the released models: real config, true tensor names, shapes and dtypes, data that is a hole.

`make_checkpoint(folder, name)` writes what a download of that release would give, in a few MB of disk, with a small
tokenizer whose special ids are those of the config. Which rows are quantised, and how, is the recipe of the release.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.checkpoint.toy import Tensor, Toy, write_json, write_sparse

import seekserve
from seekserve.checkpoint.config import parse_config
from seekserve.checkpoint.findings import Collector
from seekserve.checkpoint.layout import Expected, expected_tensors, layout

__all__ = ["NAMES", "make_checkpoint", "make_config"]

CONFIGS = Path(__file__).parents[1] / "checkpoint" / "configs"
TINY = Path(seekserve.__file__).parent / "data" / "tiny_deepseek_v3"
BLOCK = 128

Recipe = Callable[[str, Expected], dict[str, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    config: str
    architecture: str
    recipe: Recipe
    shards: int
    special_ids: tuple[int, int]
    """Begin and end of sequence."""
    thinks: bool = False
    """Its chat template opens the reasoning."""
    quantization: dict[str, Any] | None = None
    """Content of hf_quant_config.json; such exports have no quantization_config of their own."""


def make_checkpoint(folder: Path, name: str) -> Path:
    """`folder` is made and filled; `name` is one of NAMES."""
    release = RELEASES[name]
    config = _config(release)
    parsed = parse_config(config, "config.json", Collector())
    assert parsed is not None
    toy = Toy(config=config, tensors={}, shards=release.shards)
    for tensor, wanted in expected_tensors(layout(parsed, release.architecture)).items():
        toy.tensors.update(release.recipe(tensor, wanted))
    write_sparse(toy, folder)
    _write_text_files(folder, release)
    return folder


def make_config(folder: Path, name: str) -> Path:
    """What plans can be made from: the same without tensors and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    release = RELEASES[name]
    write_json(folder / "config.json", _config(release))
    if release.quantization is not None:
        write_json(folder / "hf_quant_config.json", release.quantization)
    return folder


def _config(release: Release) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((CONFIGS / f"{release.config}.json").read_text(encoding="utf-8"))
    begin, end = release.special_ids
    config |= {"bos_token_id": begin, "eos_token_id": end}
    if release.quantization is not None:
        config.pop("quantization_config", None)
    return config


def _write_text_files(folder: Path, release: Release) -> None:
    """The shipped tokenizer with its first two tokens moved to the ids of this model."""
    begin, end = release.special_ids
    tokenizer = json.loads((TINY / "tokenizer.json").read_text(encoding="utf-8"))
    vocab: dict[str, int] = tokenizer["model"]["vocab"]
    for entry in tokenizer["added_tokens"]:
        if entry["id"] in (0, 1):
            entry["id"] = vocab[entry["content"]] = (begin, end)[entry["id"]]
    write_json(folder / "tokenizer.json", tokenizer)
    settings = json.loads((TINY / "tokenizer_config.json").read_text(encoding="utf-8"))
    if release.thinks:
        head, marker, tail = settings["chat_template"].rpartition("<｜Assistant｜>")
        settings["chat_template"] = f"{head}{marker}<think>\\n{tail}"
    write_json(folder / "tokenizer_config.json", {**settings, "model_max_length": 131072})
    write_json(folder / "generation_config.json", {"bos_token_id": begin, "eos_token_id": end})
    if release.quantization is not None:
        write_json(folder / "hf_quant_config.json", release.quantization)


def bf16(name: str, wanted: Expected) -> dict[str, Tensor]:
    is_fp32 = name.endswith("e_score_correction_bias")
    return {name: Tensor("F32" if is_fp32 else "BF16", wanted.shape)}


def fp8_block(name: str, wanted: Expected) -> dict[str, Tensor]:
    """V3's own: every projection but the MTP entry and the indexer's head weights."""
    if not wanted.row.is_projection or name.endswith(("eh_proj.weight", "indexer.weights_proj.weight")):
        return bf16(name, wanted)
    rows, columns = wanted.shape
    scale = Tensor("F32", (-(-rows // BLOCK), -(-columns // BLOCK)))
    return {name: Tensor("F8_E4M3", wanted.shape), f"{name}_scale_inv": scale}


def nvfp4(name: str, wanted: Expected) -> dict[str, Tensor]:
    """NVIDIA's export: the feed-forward projections in NVFP4, attention and the MTP layer as they were in bf16."""
    if not wanted.row.is_projection or wanted.is_mtp or ".mlp." not in name:
        return bf16(name, wanted)
    rows, columns = wanted.shape
    stem = name.removesuffix("weight")
    return {
        name: Tensor("U8", (rows, columns // 2)),
        f"{stem}weight_scale": Tensor("F8_E4M3", (rows, columns // 16)),
        f"{stem}weight_scale_2": Tensor("F32", ()),
        f"{stem}input_scale": Tensor("F32", ()),
    }


def v4(name: str, wanted: Expected) -> dict[str, Tensor]:
    """MXFP4 routed experts, FP8 blocks elsewhere, all scales powers of two."""
    if not wanted.row.is_projection:
        return {name: Tensor("I64" if name.endswith("tid2eid") else "BF16", wanted.shape)}
    rows, columns = wanted.shape
    scale = f"{name.removesuffix('weight')}scale"
    if ".experts." in name:
        return {name: Tensor("I8", (rows, columns // 2)), scale: Tensor("F8_E8M0", (rows, columns // 32))}
    high = rows if wanted.row.scale == "row" else -(-rows // BLOCK)
    return {name: Tensor("F8_E4M3", wanted.shape), scale: Tensor("F8_E8M0", (high, -(-columns // BLOCK)))}


NVFP4_CONFIG = {
    "producer": {"name": "modelopt"},
    "quantization": {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": ["lm_head", "*self_attn*", "model.layers.61*"],
    },
}


def _v3(recipe: Recipe, shards: int, **more: Any) -> Release:
    values = {"config": "deepseek-v3", "architecture": "deepseek_v3", "special_ids": (0, 1), **more}
    return Release(recipe=recipe, shards=shards, **values)


RELEASES = {
    "deepseek-v3": _v3(fp8_block, 163),
    "deepseek-r1": _v3(fp8_block, 163, config="deepseek-r1", thinks=True),
    "deepseek-r1-nvfp4": _v3(nvfp4, 80, config="deepseek-r1", thinks=True, quantization=NVFP4_CONFIG),
    "deepseek-v3.2": _v3(fp8_block, 163, config="deepseek-v3.2", architecture="deepseek_v32"),
    "deepseek-v4-flash": _v3(v4, 46, config="deepseek-v4-flash", architecture="deepseek_v4"),
    "deepseek-v4-pro": _v3(v4, 120, config="deepseek-v4-pro", architecture="deepseek_v4"),
    "r1-distill-llama-70b": Release(
        config="r1-distill-llama-70b",
        architecture="llama",
        recipe=bf16,
        shards=17,
        special_ids=(128000, 128001),
        thinks=True,
    ),
    "r1-distill-qwen-7b": Release(
        config="r1-distill-qwen-7b",
        architecture="qwen2",
        recipe=bf16,
        shards=2,
        special_ids=(151646, 151643),
        thinks=True,
    ),
    "deepseek-v2-lite": Release(
        config="deepseek-v2-lite", architecture="deepseek_v2", recipe=bf16, shards=4, special_ids=(100000, 100001)
    ),
    "deepseek-moe-16b": Release(
        config="deepseek-moe-16b", architecture="deepseek_moe", recipe=bf16, shards=7, special_ids=(100000, 100001)
    ),
}
NAMES = tuple(RELEASES)
