"""Which ids end a text and how many ids there are, from the files of a bundle. An engine folder alone says neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["end_ids", "vocabulary_size"]


def end_ids(bundle_dir: Path) -> tuple[int, ...]:
    """From the generation config where there is one, else the tokenizer's end of sentence.

    Raises ValueError when neither says: without an end, every answer would run to its limit.
    """
    for folder in ("weights", "tokenizer", "engine"):
        for name in ("generation_config.json", "config.json"):
            value = _read(bundle_dir / folder / name).get("eos_token_id")
            if isinstance(value, int):
                return (value,)
            if isinstance(value, list) and value:
                return tuple(int(each) for each in value)
    token = _read(bundle_dir / "tokenizer" / "tokenizer_config.json").get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    for added in _read(bundle_dir / "tokenizer" / "tokenizer.json").get("added_tokens", ()):
        if text is not None and added["content"] == text:
            return (int(added["id"]),)
    raise ValueError(
        f"bundle {bundle_dir}: neither a generation_config.json nor tokenizer_config.json's eos_token ({text!r}) names "
        "an end id; build the bundle again from a complete checkpoint"
    )


def vocabulary_size(bundle_dir: Path) -> int:
    """Of the model where its config is there, else of the tokenizer."""
    for folder in ("weights", "engine"):
        config = _read(bundle_dir / folder / "config.json")
        size = config.get("pretrained_config", config).get("vocab_size")
        if isinstance(size, int):
            return size
    tokenizer = _read(bundle_dir / "tokenizer" / "tokenizer.json")
    ids = [int(added["id"]) for added in tokenizer.get("added_tokens", ())]
    ids += tokenizer.get("model", {}).get("vocab", {}).values()
    if not ids:
        raise ValueError(f"bundle {bundle_dir}: tokenizer/tokenizer.json holds no vocabulary; build the bundle again")
    return max(ids) + 1


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    return data if isinstance(data, dict) else {}
