"""The weights of a model as groups of equal tensors: what is stored, in which layer, in how many bytes.

From the headers of a checkpoint, tensor by tensor; or, of a bare config.json, from the family's layout and the declared
precision. How the groups are split over GPUs is `sharding.py`'s.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from seekserve.checkpoint import ModelConfig, TensorEntry
from seekserve.checkpoint.headers import DTYPE_BITS
from seekserve.checkpoint.layout import Block, Expected
from seekserve.checkpoint.quantization import Quantization

from .storage import BF16, FP32, Storage, kind_of_experts, storage_of_kind

__all__ = ["WeightGroup", "declared_groups", "groups_as_kind", "stored_groups"]

_LEFT_IN_BF16: Final = ("eh_proj.weight", "indexer.weights_proj.weight")
"""Projections that the FP8 releases leave unquantised."""
_FP32_ENDINGS: Final = ("e_score_correction_bias", "gate.bias", "gate.bias_vl", "attn_sink")
_LOOKUP: Final = Storage(64)
_MAIN_SCALES: Final = (".weight_scale_inv", ".weight_scale", ".scale")
_UNSCALED: Final = ("BF16", "F16", "F32", "F64", "I32", "I64")
_Signature = tuple[int, str, tuple[int, ...], int]
"""(bytes, dtype of the scale, its shape, second-level scales)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """Tensors of one row of the family's table in one layer; of experts, all of them."""

    name: str
    """Below the layer: `self_attn.q_b_proj.weight`; experts without their number: `experts.*.gate_proj.weight`."""
    part: str
    layer: int | None
    """None: belongs to no layer."""
    is_mtp: bool
    count: int
    rows: int
    columns: int
    storage: Storage

    @property
    def size_bytes(self) -> int:
        return self.count * self.storage.size_bytes(self.rows, self.columns)

    @property
    def is_embedding(self) -> bool:
        return self.part == "embedding"


def declared_groups(
    blocks: Iterable[Block], config: ModelConfig, declared: Quantization | None
) -> tuple[WeightGroup, ...]:
    """Raises KeyError with the declared kind when its bytes cannot be known without the tensors."""
    kind = declared.kind if declared else {"float16": "fp16", "float32": "fp32"}.get(config.dtype, "bf16")
    expert_kind, other_kind = kind_of_experts(kind, declared.expert_kind if declared else None)
    block = declared.block_shape if declared else None
    expert, other = storage_of_kind(expert_kind, block), storage_of_kind(other_kind, block)
    if expert is None or other is None:
        raise KeyError(kind)
    plain = FP32 if config.dtype == "float32" else BF16
    excluded = declared.excluded if declared else ()

    def storage(name: str, full_name: str, expected: Expected) -> Storage:
        if not expected.row.is_projection or name in _LEFT_IN_BF16 or name.endswith(_LEFT_IN_BF16):
            return _plain(name, expected, plain)
        if any(_is_excluded(full_name, pattern) for pattern in excluded):
            return plain
        found = expert if expected.row.part == "routed_experts" or ".experts." in full_name else other
        if expected.row.scale == "row" and found.scale_block is not None:
            return Storage(found.bits, found.scale_bytes, (1, found.scale_block[1]))
        return found

    return tuple(_groups(blocks, storage))


def groups_as_kind(groups: Iterable[WeightGroup], kind: str, quantised: frozenset[str]) -> tuple[WeightGroup, ...]:
    """The same model with its projections (`quantised` names) stored as `kind`: for the table of alternatives."""
    wanted = storage_of_kind(kind)
    if wanted is None:
        raise KeyError(kind)
    return tuple(_restored(group, wanted) if group.name in quantised else group for group in groups)


def _restored(group: WeightGroup, storage: Storage) -> WeightGroup:
    return WeightGroup(
        name=group.name,
        part=group.part,
        layer=group.layer,
        is_mtp=group.is_mtp,
        count=group.count,
        rows=group.rows,
        columns=group.columns,
        storage=storage,
    )


def stored_groups(blocks: Iterable[Block], tensors: Mapping[str, TensorEntry]) -> tuple[WeightGroup, ...]:
    """Exactly what the headers say. Optional tensors that are not there are left out."""
    counts: dict[tuple[str, int | None, bool, _Signature], int] = {}
    wanted: dict[tuple[str, int | None, bool, _Signature], Expected] = {}
    for block in blocks:
        for full_name, layer, name, expected in _spelt(block):
            entry = tensors.get(full_name)
            if entry is None or _is_copy(expected):
                continue
            key = (name, layer, block.is_mtp, _signature(full_name, entry, tensors))
            counts[key] = counts.get(key, 0) + 1
            wanted[key] = expected
    return tuple(_stored_group(*key, expected=wanted[key], count=count) for key, count in counts.items())


def _stored_group(
    name: str, layer: int | None, is_mtp: bool, signature: _Signature, *, expected: Expected, count: int
) -> WeightGroup:
    rows, columns = _extents(expected.shape)
    return WeightGroup(
        name=name,
        part=expected.row.part,
        layer=layer,
        is_mtp=is_mtp,
        count=count,
        rows=rows,
        columns=columns,
        storage=_storage(signature, rows, columns),
    )


def _groups(blocks: Iterable[Block], storage_of: object) -> Iterator[WeightGroup]:
    assert callable(storage_of)
    for block in blocks:
        has_layer = "{layer}" in block.prefix
        for layer in block.layers:
            for expected in block.rows:
                if _is_copy(expected):
                    continue
                rows, columns = _extents(expected.shape)
                name = _short_name(block, expected)
                full_name = block.prefix.replace("{layer}", str(layer)).replace("{expert}", "0") + expected.row.name
                yield WeightGroup(
                    name=name,
                    part=expected.row.part,
                    layer=layer if has_layer else None,
                    is_mtp=block.is_mtp,
                    count=block.experts,
                    rows=rows,
                    columns=columns,
                    storage=storage_of(name, full_name, expected),
                )


def _spelt(block: Block) -> Iterator[tuple[str, int | None, str, Expected]]:
    has_layer = "{layer}" in block.prefix
    rows = [(_short_name(block, expected), expected) for expected in block.rows]
    for layer in block.layers:
        at_layer = block.prefix.replace("{layer}", str(layer))
        for expert in range(block.experts):
            start = at_layer.replace("{expert}", str(expert))
            for name, expected in rows:
                yield start + expected.row.name, layer if has_layer else None, name, expected


def _short_name(block: Block, expected: Expected) -> str:
    return f"experts.*.{expected.row.name}" if "{expert}" in block.prefix else expected.row.name


def _is_copy(expected: Expected) -> bool:
    """Embedding and head that an MTP layer is stored with: engines share those of the main model."""
    return expected.is_mtp and not expected.row.is_parameter


def _extents(shape: tuple[int, ...]) -> tuple[int, int]:
    return (shape[0], 1) if len(shape) == 1 else (shape[0], shape[1])


def _plain(name: str, expected: Expected, plain: Storage) -> Storage:
    if not expected.row.is_parameter:
        return _LOOKUP
    return FP32 if name.endswith(_FP32_ENDINGS) else plain


def _is_excluded(full_name: str, pattern: str) -> bool:
    module = full_name.removesuffix(".weight")
    return fnmatch.fnmatchcase(module, pattern) or module.startswith(f"{pattern}.")


def _signature(name: str, entry: TensorEntry, tensors: Mapping[str, TensorEntry]) -> _Signature:
    """All that decides the bytes of a tensor and of the scales beside it."""
    size_bytes = entry[4] - entry[3]
    if not name.endswith(".weight") or entry[1] in _UNSCALED:
        return size_bytes, "", (), 0
    stem = name[: -len(".weight")]
    for ending in _MAIN_SCALES:
        scale = tensors.get(stem + ending)
        if scale is not None:
            constants = (f"{stem}.weight_scale_2" in tensors) + (f"{stem}.input_scale" in tensors)
            return size_bytes, scale[1], scale[2], constants
    return size_bytes, "", (), 0


def _storage(signature: _Signature, rows: int, columns: int) -> Storage:
    size_bytes, scale_dtype, scale_shape, constants = signature
    # Packed 4-bit values make a stored tensor of half the elements.
    bits = size_bytes * 8 // max(rows * columns, 1)
    if not scale_dtype:
        return Storage(bits)
    each = DTYPE_BITS[scale_dtype] // 8
    if len(scale_shape) < 2:
        is_row = scale_shape == (rows,) and rows > 1
        return Storage(bits, each, (1, 0) if is_row else None, 4 * constants)
    blocks = _block(rows, scale_shape[0]), _block(columns, scale_shape[1])
    return Storage(bits, each, blocks, 4 * constants)


def _block(extent: int, scales: int) -> int:
    """The block edge that gives this many scales: the powers of two that engines use are tried first."""
    for edge in (128, 16, 32, 64, 1, 256):
        if -(-extent // edge) == scales:
            return edge
    return -(-extent // max(scales, 1))
