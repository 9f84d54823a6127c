"""Which files of a checkpoint folder go into a bundle, and where. Only known names are taken, never code.

Links are followed to their content, so a snapshot of a Hugging Face cache (links into its blobs) is as good as any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FileCopy", "files_for_bundle", "missing_files"]

_WEIGHTS_FOLDER = "weights"
_TOKENIZER_FOLDER = "tokenizer"
_SMALL_FILES = (
    ("config.json", _WEIGHTS_FOLDER),
    ("generation_config.json", _WEIGHTS_FOLDER),
    ("hf_quant_config.json", _WEIGHTS_FOLDER),
    ("model.safetensors.index.json", _WEIGHTS_FOLDER),
    ("tokenizer.json", _TOKENIZER_FOLDER),
    ("tokenizer_config.json", _TOKENIZER_FOLDER),
    ("special_tokens_map.json", _TOKENIZER_FOLDER),
    ("added_tokens.json", _TOKENIZER_FOLDER),
    ("chat_template.jinja", _TOKENIZER_FOLDER),
)
_NEEDED = ("config.json", "tokenizer.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCopy:
    """One file to be: where it comes from and where in the bundle it goes."""

    source: Path
    """The real file, links resolved."""
    target: str
    """POSIX path relative to the bundle."""
    size_bytes: int
    is_weights: bool


def files_for_bundle(checkpoint: Path, shards: Sequence[str]) -> list[FileCopy]:
    """In the order in which they are written: small ones first."""
    small = [(name, folder) for name, folder in _SMALL_FILES if (checkpoint / name).is_file()]
    return [
        *(_copy(checkpoint / name, folder, is_weights=False) for name, folder in small),
        *(_copy(checkpoint / name, _WEIGHTS_FOLDER, is_weights=True) for name in shards),
    ]


def missing_files(checkpoint: Path) -> list[str]:
    """Files besides the weights without which a bundle could not be served."""
    return [name for name in _NEEDED if not (checkpoint / name).is_file()]


def _copy(path: Path, folder: str, *, is_weights: bool) -> FileCopy:
    real = path.resolve()
    return FileCopy(source=real, target=f"{folder}/{path.name}", size_bytes=real.stat().st_size, is_weights=is_weights)
