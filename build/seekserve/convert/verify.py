"""Reads a finished output again and holds it against its source: bit by bit, and as errors that people can judge.

The codes must be exactly those of the definition in `formula`; that is independent of the kernels. Relative error is
the Frobenius norm of the difference over that of the weight, over all tensors of a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seekserve.errors import CheckpointError
from seekserve.output import problems_text

from .formula import BLOCK, blocks_in, dequantise_exactly, quantise_exactly, spread
from .layout import OutputShard, Piece, Work
from .plan import ConversionPlan
from .source import SourceReader, file_prints

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GroupError", "TensorError", "Verification", "verify_output"]

_WORST: Final = 5
_CHUNK_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorError:
    name: str
    group: str
    relative_error: float
    largest_error: float
    """Largest absolute difference."""
    zero_blocks: int
    """128x128 blocks without any value but zero; their scale is 1."""

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "group": self.group,
            "relative_error": self.relative_error,
            "largest_error": self.largest_error,
            "zero_blocks": self.zero_blocks,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupError:
    tensors: int
    relative_error: float
    worst_relative_error: float

    def to_json(self) -> dict[str, object]:
        return {
            "tensors": self.tensors,
            "relative_error": self.relative_error,
            "worst_relative_error": self.worst_relative_error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    groups: Mapping[str, GroupError]
    worst: tuple[TensorError, ...]
    zero_blocks: int
    zero_block_tensors: tuple[str, ...]
    unchanged_tensors: int
    """Copied tensors, found equal byte by byte."""

    def to_json(self) -> dict[str, object]:
        return {
            "groups": {name: group.to_json() for name, group in self.groups.items()},
            "worst": [tensor.to_json() for tensor in self.worst],
            "zero_blocks": self.zero_blocks,
            "zero_block_tensors": list(self.zero_block_tensors),
            "unchanged_tensors": self.unchanged_tensors,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    work: Work
    is_exact: bool
    error_squared: float
    weight_squared: float
    largest_error: float
    zero_blocks: int


def verify_output(plan: ConversionPlan, output: Path, *, workers: int, progress: Callable[[int], None]) -> Verification:
    """Raises CheckpointError naming every tensor that is not what the definition gives."""
    import torch

    output_prints = file_prints(output, [shard.file for shard in plan.shards])

    def one(shard: OutputShard, work: Work) -> _Measured:
        source, result = SourceReader(plan.folder, plan.prints), SourceReader(output, output_prints)
        try:
            return _Comparison(source, result, shard, work, progress).measure()
        finally:
            source.close()
            result.close()

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(one, shard, work) for shard in plan.shards for work in shard.works]
            measured = [future.result() for future in futures]
    finally:
        torch.set_num_threads(before)
    wrong = [m.work.piece.name for m in measured if not m.is_exact]
    if wrong:
        raise CheckpointError(
            problems_text(f"{output}: {len(wrong)} tensors are not what the definition gives", wrong[:200]),
            hint="is the disk or the memory of this machine at fault? remove the partial output and convert again",
        )
    return _summary(measured)


def _summary(measured: list[_Measured]) -> Verification:
    changed = [m for m in measured if m.work.action != "copy"]
    tensors = [_tensor_error(m) for m in changed]
    groups = {}
    for group in sorted({m.work.group for m in changed}):
        of_group = [m for m in changed if m.work.group == group]
        groups[group] = GroupError(
            tensors=len(of_group),
            relative_error=_ratio(sum(m.error_squared for m in of_group), sum(m.weight_squared for m in of_group)),
            worst_relative_error=max(_ratio(m.error_squared, m.weight_squared) for m in of_group),
        )
    return Verification(
        groups=groups,
        worst=tuple(sorted(tensors, key=lambda tensor: -tensor.relative_error)[:_WORST]),
        zero_blocks=sum(tensor.zero_blocks for tensor in tensors),
        zero_block_tensors=tuple(tensor.name for tensor in tensors if tensor.zero_blocks),
        unchanged_tensors=len(measured) - len(changed),
    )


def _tensor_error(measured: _Measured) -> TensorError:
    return TensorError(
        name=measured.work.piece.name,
        group=measured.work.group,
        relative_error=_ratio(measured.error_squared, measured.weight_squared),
        largest_error=measured.largest_error,
        zero_blocks=measured.zero_blocks,
    )


def _ratio(error_squared: float, weight_squared: float) -> float:
    return math.sqrt(error_squared / weight_squared) if weight_squared else 0.0


class _Comparison:
    """One tensor, a few MB at a time."""

    def __init__(
        self,
        source: SourceReader,
        result: SourceReader,
        shard: OutputShard,
        work: Work,
        progress: Callable[[int], None],
    ) -> None:
        import torch

        self._torch, self._work, self._shard = torch, work, shard
        self._source, self._result, self._progress = source, result, progress
        self._dtypes = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F8_E4M3": torch.uint8}
        self._is_exact, self._largest = True, 0.0
        self._error_squared = self._weight_squared = 0.0
        self._zero_blocks = 0

    def measure(self) -> _Measured:
        {"quantise": self._quantised, "dequantise": self._dequantised, "cast": self._cast, "copy": self._copied}[
            self._work.action
        ]()
        return _Measured(
            work=self._work,
            is_exact=self._is_exact,
            error_squared=self._error_squared,
            weight_squared=self._weight_squared,
            largest_error=self._largest,
            zero_blocks=self._zero_blocks,
        )

    def _copied(self) -> None:
        size = self._work.source_bytes
        for begin in range(0, size, _CHUNK_BYTES):
            count = min(_CHUNK_BYTES, size - begin)
            self._is_exact &= self._from_source(begin, count) == self._from_result(self._work.piece, begin, count)

    def _cast(self) -> None:
        dtype = self._dtypes[self._work.source.dtype]
        for begin in range(0, self._work.source_bytes, _CHUNK_BYTES):
            count = min(_CHUNK_BYTES, self._work.source_bytes - begin)
            before = self._torch.frombuffer(self._from_source(begin, count), dtype=dtype)
            at, size = 2 * begin // dtype.itemsize, 2 * count // dtype.itemsize
            after = self._torch.frombuffer(self._from_result(self._work.piece, at, size), dtype=self._torch.bfloat16)
            self._is_exact &= bool(self._torch.equal(before.to(self._torch.bfloat16), after))
            self._add(before.float(), after.float())

    def _quantised(self) -> None:
        piece, scale_piece = self._work.piece, self._work.scale_piece
        assert scale_piece is not None
        columns = self._work.source.shape[1]
        scales = self._floats(self._from_result(scale_piece, 0, scale_piece.size_bytes), scale_piece.shape)
        dtype = self._dtypes[self._work.source.dtype]
        for start, height in self._panels(BLOCK, columns * dtype.itemsize):
            row = columns * dtype.itemsize
            weight = self._torch.frombuffer(self._from_source(start * row, height * row), dtype=dtype).view(-1, columns)
            raw = self._from_result(piece, start * columns, height * columns)
            codes = self._torch.frombuffer(raw, dtype=self._torch.uint8).view(-1, columns)
            held = scales[start // BLOCK : blocks_in(start + height)]
            right_codes, right_scales = quantise_exactly(weight)
            self._is_exact &= bool(self._torch.equal(codes, right_codes) and self._torch.equal(held, right_scales))
            self._add(weight.float(), dequantise_exactly(codes, spread(held, height, columns)))
            self._zero_blocks += _zero_blocks(self._torch, codes)

    def _dequantised(self) -> None:
        scale = self._work.scale
        assert scale is not None
        columns = self._work.source.shape[1]
        entry = scale.entry
        raw = bytearray(entry.end_bytes - entry.begin_bytes)
        self._source.read_into(entry.file, entry.begin_bytes, memoryview(raw))
        values = self._torch.frombuffer(raw, dtype=self._dtypes[entry.dtype]).float()
        block_rows = scale.block[0] if scale.kind == "block" else BLOCK
        for start, height in self._panels(block_rows, columns):
            held = self._from_source(start * columns, height * columns)
            codes = self._torch.frombuffer(held, dtype=self._torch.uint8).view(-1, columns)
            if scale.kind == "block":
                part = values.view(entry.shape)[start // block_rows : blocks_in(start + height, block_rows)]
                factors = spread(part, height, columns, scale.block)
            else:
                factors = values.view(-1, 1)[start : start + height] if scale.kind == "channel" else values.view(1, 1)
            right = dequantise_exactly(codes, factors)
            result = self._from_result(self._work.piece, 2 * start * columns, 2 * height * columns)
            after = self._torch.frombuffer(result, dtype=self._torch.bfloat16).view(-1, columns)
            self._is_exact &= bool(self._torch.equal(right.to(self._torch.bfloat16), after))
            self._add(right, after.float())
            self._zero_blocks += _zero_blocks(self._torch, codes)

    def _panels(self, block_rows: int, row_bytes: int) -> list[tuple[int, int]]:
        rows = self._work.source.shape[0]
        step = block_rows * max(1, _CHUNK_BYTES // max(1, block_rows * row_bytes))
        return [(start, min(step, rows - start)) for start in range(0, rows, step)] if row_bytes else []

    def _add(self, before: Tensor, after: Tensor) -> None:
        difference = after - before
        # in float64: squares of the huge weights that bfloat16 can hold overflow float32
        self._error_squared += float(difference.double().square().sum())
        self._weight_squared += float(before.double().square().sum())
        if difference.numel():
            self._largest = max(self._largest, float(difference.abs().amax()))

    def _from_source(self, begin: int, count: int) -> bytearray:
        raw = bytearray(count)
        self._source.read_into(self._work.source.file, self._work.source.begin_bytes + begin, memoryview(raw))
        self._progress(count)
        return raw

    def _from_result(self, piece: Piece, begin: int, count: int) -> bytearray:
        raw = bytearray(count)
        self._result.read_into(self._shard.file, self._shard.offsets[piece.name] + begin, memoryview(raw))
        return raw

    def _floats(self, raw: bytearray, shape: tuple[int, ...]) -> Tensor:
        values: Tensor = self._torch.frombuffer(raw, dtype=self._torch.float32)
        return values.view(shape)


def _zero_blocks(torch: Any, codes: Tensor) -> int:
    rows, columns = codes.shape
    magnitudes = torch.nn.functional.pad(codes & 0x7F, (0, -columns % BLOCK, 0, -rows % BLOCK))
    tiles = magnitudes.view(blocks_in(rows), BLOCK, blocks_in(columns), BLOCK)
    return int((tiles.amax(dim=(1, 3)) == 0).sum())
