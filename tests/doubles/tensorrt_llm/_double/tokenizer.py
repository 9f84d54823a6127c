"""The tokenizer of a folder, as far as the engine needs one: end ids always, text where `tokenizers` is installed."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["TokenizerOfFolder", "load_tokenizer"]

_BROKEN = "\ufffd"


class TokenizerOfFolder:
    """Surface of transformers' tokenizers that the package uses."""

    def __init__(self, folder: Path) -> None:
        self.name_or_path = str(folder)
        self._config = _json(folder / "tokenizer_config.json")
        self._raw = _json(folder / "tokenizer.json")
        self._fallback = [_json(folder / name) for name in ("generation_config.json", "config.json")]
        self.eos_token_id = self._id("eos")
        self.pad_token_id = self._id("pad")
        self._real = _real_tokenizer(folder / "tokenizer.json")

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(self._need().encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "" if self._real is None else str(self._real.decode(list(token_ids), skip_special_tokens))

    def _need(self) -> Any:
        if self._real is None:
            raise RuntimeError("the double needs the tokenizers wheel and a tokenizer.json to encode text")
        return self._real

    def _id(self, kind: str) -> int | None:
        token = self._config.get(f"{kind}_token")
        word = token.get("content") if isinstance(token, dict) else token
        for entry in self._raw.get("added_tokens", ()):
            if entry["content"] == word:
                return int(entry["id"])
        vocabulary = self._raw.get("model", {}).get("vocab", {})
        if isinstance(vocabulary, dict) and word in vocabulary:
            return int(vocabulary[word])
        for config in self._fallback:
            value = config.get(f"{kind}_token_id")
            if value is not None:
                return int(value[0] if isinstance(value, list) else value)
        return None


class Incremental:
    """Text of a growing answer: what may still change with the next token is held back."""

    def __init__(self, tokenizer: Any, skips_special: bool) -> None:
        self._tokenizer, self._skips_special = tokenizer, skips_special

    def decode_stable(self, token_ids: Sequence[int], is_final: bool) -> str:
        text = str(self._tokenizer.decode(token_ids, skip_special_tokens=self._skips_special))
        return text if is_final else text.rstrip(_BROKEN)


def load_tokenizer(given: Any, model: Path) -> Any:
    """An object is used as it is; a path or nothing is read from its folder, None when there is none."""
    if given is not None and not isinstance(given, (str, Path)):
        return given
    folder = Path(given) if given is not None else model
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
    return TokenizerOfFolder(folder) if any((folder / name).exists() for name in names) else None


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _real_tokenizer(path: Path) -> Any:
    try:
        module = importlib.import_module("tokenizers")
    except ImportError:
        return None
    return module.Tokenizer.from_file(str(path)) if path.exists() else None
