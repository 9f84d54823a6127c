"""The output laid down before a byte is written: shards, the tensors of each at their offsets, and where each is from.

Shards and names are those of the source; scales stand in the shard of their weight. Inside a shard wider dtypes come
first, so that every tensor is aligned for loaders that map the file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from seekserve.checkpoint.headers import DTYPE_BITS, TensorEntry

__all__ = ["Action", "OutputShard", "Piece", "Scale", "Work", "layout_digest", "make_shard", "tensor_bytes"]

Action = Literal["copy", "cast", "quantise", "dequantise"]
ScaleKind = Literal["block", "tensor", "channel"]
_METADATA: Final = {"format": "pt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One tensor of the output."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return tensor_bytes(self.dtype, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Where the factors of an FP8 weight lie; not necessarily in the file of the weight."""

    entry: TensorEntry
    kind: ScaleKind
    block: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One source tensor and what becomes of it."""

    action: Action
    group: str
    """Part of the model, for the report: attention, routed_experts, ..."""
    source: TensorEntry
    piece: Piece
    scale_piece: Piece | None = None
    """Only of `quantise`."""
    scale: Scale | None = None
    """Only of `dequantise`."""

    @property
    def source_bytes(self) -> int:
        return self.source.end_bytes - self.source.begin_bytes

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (self.piece,) if self.scale_piece is None else (self.piece, self.scale_piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputShard:
    file: str
    works: tuple[Work, ...]
    pieces: tuple[Piece, ...]
    """In file order."""
    offsets: Mapping[str, int]
    """Name -> position in the file."""
    header: bytes
    size_bytes: int

    @property
    def source_bytes(self) -> int:
        return sum(work.source_bytes for work in self.works)


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    return math.prod(shape) * DTYPE_BITS[dtype] // 8


def make_shard(file: str, works: Sequence[Work]) -> OutputShard:
    pieces = sorted((p for work in works for p in work.pieces), key=lambda piece: -DTYPE_BITS[piece.dtype])
    table: dict[str, object] = {"__metadata__": _METADATA}
    position = 0
    begins = {}
    for piece in pieces:
        begins[piece.name] = position
        end = position + piece.size_bytes
        table[piece.name] = {"dtype": piece.dtype, "shape": list(piece.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return OutputShard(
        file=file,
        works=tuple(works),
        pieces=tuple(pieces),
        offsets={name: len(header) + begin for name, begin in begins.items()},
        header=header,
        size_bytes=len(header) + position,
    )


def layout_digest(shards: Sequence[OutputShard]) -> str:
    """Equal for equal outputs-to-be: a run may only continue what was begun with the same layout."""
    digest = hashlib.sha256()
    for shard in shards:
        digest.update(shard.file.encode() + b"\0" + shard.header)
    return digest.hexdigest()
