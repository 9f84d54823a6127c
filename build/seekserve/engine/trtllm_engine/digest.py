"""Digests of what a step is made from: the checkpoint's files, its command, the version, and the step before it.

Weights count by name, size, time of change and safetensors header: reading hundreds of GB to learn that nothing changed
would cost more than it saves. Small files count by content. Paths of the work folder do not count, so it may be moved.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..source import Source

__all__ = ["source_digest", "step_digest"]

_SMALL_BYTES: Final = 64 * 1024 * 1024
_HEADER_BYTES: Final = 64 * 1024


def source_digest(source: Source) -> str:
    entries = [[copy.target, *_print_of(copy.source, is_weights=copy.is_weights)] for copy in source.copies]
    return _digest(["source", *sorted(entries)])


def step_digest(
    before: str, argv: Sequence[str], env: Mapping[str, str], version: str, *, places: Mapping[Path, str]
) -> str:
    """`places` (folder -> word) are counted as their words."""
    words = [_without(word, places) for word in argv]
    return _digest([before, words, sorted(env.items()), version])


def _print_of(path: Path, *, is_weights: bool) -> list[object]:
    found = path.stat()
    assert stat.S_ISREG(found.st_mode), path
    if not is_weights and found.st_size <= _SMALL_BYTES:
        return [hashlib.sha256(path.read_bytes()).hexdigest()]
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    return [found.st_size, found.st_mtime_ns, hashlib.sha256(head).hexdigest()]


def _without(word: str, places: Mapping[Path, str]) -> str:
    for place, name in places.items():
        if word == str(place) or word.startswith(f"{place}/"):
            return word.replace(str(place), name, 1)
    return word


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
