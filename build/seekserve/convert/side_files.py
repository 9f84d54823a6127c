"""The files beside the weights: config.json and the index rewritten together, tokenizer and generation files copied.

Only known names are taken, never code. A quantisation that the output no longer has is not declared anywhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from seekserve.checkpoint.config import CONFIG_FILE
from seekserve.checkpoint.index import INDEX_FILE, SINGLE_FILE
from seekserve.errors import CheckpointError

from .plan import ConversionPlan
from .rules import FP8_CONFIG

__all__ = ["side_files"]

_MAX_BYTES: Final = 256 * 1024 * 1024
_COPIED: Final = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "LICENSE",
    "LICENSE-MODEL",
)


def side_files(plan: ConversionPlan) -> dict[str, bytes]:
    """Name -> content, in the order of writing: config.json comes last, as what makes a folder a checkpoint."""
    out = {name: _content(plan.folder / name) for name in _COPIED if (plan.folder / name).is_file()}
    if [shard.file for shard in plan.shards] != [SINGLE_FILE]:
        out[INDEX_FILE] = _json_bytes(_index(plan))
    out[CONFIG_FILE] = _json_bytes(_config(plan))
    return out


def _index(plan: ConversionPlan) -> dict[str, Any]:
    weight_map = {piece.name: shard.file for shard in plan.shards for piece in shard.pieces}
    total = sum(piece.size_bytes for shard in plan.shards for piece in shard.pieces)
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}


def _config(plan: ConversionPlan) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(_content(plan.folder / CONFIG_FILE))
    config.pop("quantization_config", None)
    config.update({key: "bfloat16" for key in ("torch_dtype", "dtype") if key in config})
    if plan.target == "fp8-block":
        config["quantization_config"] = FP8_CONFIG
    return config


def _content(path: Path) -> bytes:
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise CheckpointError(f"{path} has {size:,} bytes where at most {_MAX_BYTES:,} are copied")
    return path.read_bytes()


def _json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
