"""One thread's share of a conversion: takes a source tensor through its buffers into its place in the output file.

Owns a reader, a kernel and two buffers of a few MB; a tensor larger than those goes through in row panels. Values that
are not finite come back as a Fault with the tensor's name; what was written by then is never published.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seekserve.checkpoint.headers import DTYPE_BITS

from .formula import BLOCK
from .kernel import Dequantiser, Quantise
from .layout import Scale, Work
from .source import FilePrint, SourceReader

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Fault", "Outcome", "Place", "Stopped", "Worker", "buffer_bytes", "panel_rows"]

_CHUNK_BYTES: Final = 1024 * 1024  # with its output within the second-level cache of a core
_NOT_FINITE: Final = {"BF16": 0x7F80, "F16": 0x7C00}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    name: str
    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.name} ({self.file}): {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    checksums: Mapping[str, int]
    """Name of each piece -> CRC-32 of its bytes."""
    fault: Fault | None


def panel_rows(columns: int, item_bytes: int, block_rows: int) -> int:
    """Rows that go through at once: whole blocks, as many as the chunk holds and at least one."""
    return block_rows * max(1, _CHUNK_BYTES // max(1, block_rows * columns * item_bytes))


def buffer_bytes(work: Work) -> int:
    """Memory that a worker needs for this tensor besides its kernel: input and output."""
    if work.action in ("copy", "cast"):
        return 2 * _CHUNK_BYTES
    columns, item = work.source.shape[1], DTYPE_BITS[work.source.dtype] // 8
    block_rows = work.scale.block[0] if work.scale and work.scale.kind == "block" else BLOCK
    rows = min(panel_rows(columns, item, block_rows), work.source.shape[0])
    out = 2 if work.action == "dequantise" else 1
    scales = 0 if work.scale is None else work.scale.entry.end_bytes - work.scale.entry.begin_bytes
    return rows * columns * (item + out) + 2 * scales


class Worker:
    def __init__(
        self,
        folder: Path,
        prints: Mapping[str, FilePrint],
        quantise: Quantise,
        progress: Callable[[int], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        import torch

        self._torch = torch
        self._dtypes = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F8_E4M3": torch.uint8}
        self._reader = SourceReader(folder, prints)
        self._quantise, self._dequantise = quantise, Dequantiser()
        self._progress, self._is_stopped = progress, is_stopped
        self._in, self._out = bytearray(_CHUNK_BYTES), bytearray(_CHUNK_BYTES)

    def close(self) -> None:
        self._reader.close()

    def run(self, work: Work, out: Place) -> Outcome:
        if work.action == "quantise":
            return self._run_quantise(work, out)
        if work.action == "dequantise":
            return self._run_dequantise(work, out)
        return self._run_flat(work, out)

    def _run_flat(self, work: Work, out: Place) -> Outcome:
        """Copies bytes; casts to bfloat16 on the way where that is asked for."""
        writer = _PieceWriter(out, work.piece.name)
        is_finite = True
        for chunk in self._chunks(work, _CHUNK_BYTES):
            content = chunk
            if work.source.dtype in ("BF16", "F16", "F32"):
                values = self._as_tensor(chunk, work.source.dtype)
                is_finite = self._all_finite(values, work.source.dtype) and is_finite
                if work.action == "cast":
                    narrow = self._tensor("_out", 2 * values.numel()).view(self._torch.bfloat16)
                    narrow.copy_(values)
                    content = memoryview(self._out)[: 2 * values.numel()]
            writer.write(content)
        fault = None if is_finite else _fault(work, "holds NaN or infinite values")
        return Outcome(checksums={work.piece.name: writer.checksum()}, fault=fault)

    def _run_quantise(self, work: Work, out: Place) -> Outcome:
        torch = self._torch
        assert work.scale_piece is not None
        columns = work.source.shape[1]
        scale_bytes = bytearray(max(4, work.scale_piece.size_bytes))
        scales = torch.frombuffer(scale_bytes, dtype=torch.float32)[: work.scale_piece.size_bytes // 4]
        scales = scales.view(work.scale_piece.shape)
        item = DTYPE_BITS[work.source.dtype] // 8
        step = panel_rows(columns, item, BLOCK)
        writer = _PieceWriter(out, work.piece.name)
        for number, chunk in enumerate(self._chunks(work, step * columns * item)):
            weight = self._as_tensor(chunk, work.source.dtype).view(-1, columns)
            codes = self._tensor("_out", weight.numel()).view(weight.shape)
            first = number * (step // BLOCK)
            self._quantise(weight, codes, scales[first : first + -(-weight.shape[0] // BLOCK)])
            writer.write(memoryview(self._out)[: weight.numel()])
        scale_writer = _PieceWriter(out, work.scale_piece.name)
        scale_writer.write(memoryview(scale_bytes)[: work.scale_piece.size_bytes])
        checksums = {work.piece.name: writer.checksum(), work.scale_piece.name: scale_writer.checksum()}
        return Outcome(checksums=checksums, fault=self._scale_fault(work, scales))

    def _scale_fault(self, work: Work, scales: Tensor) -> Fault | None:
        """The largest magnitude of a block is infinite or NaN exactly when the block holds such a value."""
        bad = (~self._torch.isfinite(scales)).nonzero()
        if not len(bad):
            return None
        row, column = (int(index) * BLOCK for index in bad[0])
        where = f"NaN or infinite values in {len(bad)} blocks, the first at row {row}, column {column}"
        return _fault(work, where)

    def _run_dequantise(self, work: Work, out: Place) -> Outcome:
        assert work.scale is not None
        columns = work.source.shape[1]
        block_rows = work.scale.block[0] if work.scale.kind == "block" else BLOCK
        step = panel_rows(columns, 1, block_rows)
        factors = self._factors(work.scale, columns)
        writer = _PieceWriter(out, work.piece.name)
        is_finite, row = True, 0
        for chunk in self._chunks(work, step * columns):
            codes = self._as_tensor(chunk, "F8_E4M3").view(-1, columns)
            wide = self._tensor("_out", 2 * codes.numel()).view(self._torch.bfloat16).view(codes.shape)
            for start in range(0, codes.shape[0], block_rows):
                part = slice(start, start + block_rows)
                scale = _rows_of(factors, work.scale.kind, row + start, block_rows)
                is_finite = self._dequantise(codes[part], scale, wide[part]) and is_finite
            writer.write(memoryview(self._out)[: 2 * codes.numel()])
            row += codes.shape[0]
        fault = None if is_finite else _fault(work, "NaN codes, or products with their scales that are not finite")
        return Outcome(checksums={work.piece.name: writer.checksum()}, fault=fault)

    def _factors(self, scale: Scale, columns: int) -> Tensor:
        """Per block of rows and column; or one per row; or one."""
        entry = scale.entry
        raw = bytearray(entry.end_bytes - entry.begin_bytes)
        self._reader.read_into(entry.file, entry.begin_bytes, memoryview(raw))
        values = self._torch.frombuffer(raw, dtype=self._dtypes[entry.dtype]).float()
        if scale.kind == "block":
            return values.view(entry.shape).repeat_interleave(scale.block[1], 1)[:, :columns]
        return values.view(-1, 1)

    def _chunks(self, work: Work, chunk_bytes: int) -> Iterator[memoryview]:
        """The source's bytes through the input buffer; each chunk is valid until the next."""
        entry = work.source
        self._tensor("_in", min(chunk_bytes, entry.end_bytes - entry.begin_bytes))
        for begin in range(entry.begin_bytes, entry.end_bytes, max(1, chunk_bytes)):
            if self._is_stopped():
                raise Stopped
            size = min(chunk_bytes, entry.end_bytes - begin)
            view = memoryview(self._in)[:size]
            self._reader.read_into(entry.file, begin, view)
            yield view
            self._progress(size)

    def _as_tensor(self, chunk: memoryview, dtype: str) -> Tensor:
        tensor: Tensor = self._tensor("_in", len(chunk)).view(self._dtypes[dtype])
        return tensor

    def _tensor(self, buffer: str, size_bytes: int) -> Tensor:
        """The first bytes of a buffer as uint8, the buffer grown to hold them."""
        held: bytearray = getattr(self, buffer)
        if len(held) < size_bytes:
            held = bytearray(size_bytes)
            setattr(self, buffer, held)
        return self._torch.frombuffer(held, dtype=self._torch.uint8)[:size_bytes]

    def _all_finite(self, values: Tensor, dtype: str) -> bool:
        if dtype == "F32":
            return bool(values.isfinite().all())
        return int((values.view(self._torch.int16) & 0x7FFF).amax()) < _NOT_FINITE[dtype]


class Stopped(Exception):
    """Another thread has failed, or the user has had enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    descriptor: int | None
    """None when nothing is written any more and only faults are looked for."""
    offsets: Mapping[str, int]


class _PieceWriter:
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._position = place, place.offsets[name]
        self._checksum = 0

    def write(self, content: memoryview) -> None:
        if self._place.descriptor is None:
            return
        self._checksum = zlib.crc32(content, self._checksum)
        view = content
        while view:
            count = os.pwrite(self._place.descriptor, view, self._position)
            self._position += count
            view = view[count:]

    def checksum(self) -> int:
        return self._checksum


def _rows_of(factors: Tensor, kind: str, row: int, block_rows: int) -> Tensor:
    if kind == "block":
        return factors[row // block_rows : row // block_rows + 1]
    return factors[row : row + block_rows] if kind == "channel" else factors


def _fault(work: Work, what: str) -> Fault:
    return Fault(name=work.piece.name, file=work.source.file, what=what)
