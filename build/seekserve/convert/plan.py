"""Decides what a conversion does with every tensor, or refuses with every reason, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from seekserve.checkpoint import ModelFacts, TensorEntry, read_checkpoint, verify
from seekserve.checkpoint.layout import Expected, expected_tensors
from seekserve.checkpoint.layout import layout as family_layout
from seekserve.checkpoint.precision import SCALE_ENDINGS, weight_of_scale
from seekserve.errors import CheckpointError
from seekserve.output import problems_text

from .formula import BLOCK, blocks_in
from .layout import OutputShard, Piece, Scale, Work, make_shard
from .rules import RULES, FamilyRule, is_kept_wide, is_quantised
from .source import FilePrint, StoredTensor, file_prints, stored_tensors

__all__ = ["ConversionPlan", "Target", "plan_conversion"]

Target = Literal["fp8-block", "bf16"]
_PLAIN: Final = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
_FP8: Final = "F8_E4M3"
_SCALE_DTYPES: Final = ("F32", "BF16", "F16")
_LISTED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionPlan:
    folder: Path
    facts: ModelFacts
    target: Target
    shards: tuple[OutputShard, ...]
    prints: Mapping[str, FilePrint]

    @property
    def works(self) -> Iterable[Work]:
        return (work for shard in self.shards for work in shard.works)

    @property
    def source_bytes(self) -> int:
        return sum(shard.source_bytes for shard in self.shards)

    @property
    def output_bytes(self) -> int:
        return sum(shard.size_bytes for shard in self.shards)


def plan_conversion(checkpoint: str | Path, target: Target) -> ConversionPlan:
    """Raises CheckpointError with all that stands against it."""
    facts = read_checkpoint(checkpoint)
    unscaled = _unscaled(facts.tensors)
    if unscaled:
        raise CheckpointError(
            problems_text(
                f"{facts.folder}: {len(unscaled)} FP8 weights have no scale, their values cannot be read back",
                _cut([f"{name} ({entry.file})" for name, entry in unscaled]),
            ),
            hint="download the shards and the index again",
        )
    verify(facts)
    prints = file_prints(facts.folder, facts.files)
    stored = stored_tensors(facts.folder, facts.files, facts.architecture)
    works_of = _to_fp8(facts, stored) if target == "fp8-block" else _to_bf16(facts, stored)
    shards = tuple(make_shard(file, works) for file, works in _named(works_of).items())
    return ConversionPlan(folder=facts.folder, facts=facts, target=target, shards=shards, prints=prints)


def _named(works_of: Mapping[str, list[Work]]) -> dict[str, list[Work]]:
    """The source's file names; counted anew when files fall away because they held nothing but scales."""
    held = {file: works for file, works in works_of.items() if works}
    if len(held) == len(works_of):
        return held
    total = len(held)
    return {f"model-{n:05d}-of-{total:05d}.safetensors": works for n, works in enumerate(held.values(), start=1)}


def _unscaled(tensors: Mapping[str, TensorEntry]) -> list[tuple[str, TensorEntry]]:
    owned = {weight_of_scale(name) for name in tensors}
    return [(n, e) for n, e in tensors.items() if e.dtype == _FP8 and len(e.shape) == 2 and n not in owned]


def _to_fp8(facts: ModelFacts, stored: Mapping[str, list[StoredTensor]]) -> dict[str, list[Work]]:
    rule = RULES.get(facts.architecture)
    if rule is None:
        raise CheckpointError(
            f"{facts.folder}: {facts.identity.title} has no FP8 block layout of its own to convert to",
            hint=f"families that have: {', '.join(sorted(RULES))}",
        )
    if facts.precision not in _PLAIN.values():
        raise CheckpointError(
            f"{facts.folder} is stored in {facts.precision}; FP8 blocks are made from bf16, fp16 or fp32",
            hint="nothing to do" if facts.precision == "fp8_block" else "start from the bf16 checkpoint",
        )
    expected = _expected(facts)
    out: dict[str, list[Work]] = {}
    for file, tensors in stored.items():
        out[file] = [_quantised_or_kept(t, expected.get(t.canonical), rule, facts) for t in tensors]
    return out


def _quantised_or_kept(tensor: StoredTensor, expected: Expected | None, rule: FamilyRule, facts: ModelFacts) -> Work:
    entry, group = tensor.entry, expected.row.part if expected else "other"
    if is_quantised(expected, rule) and entry.dtype in _PLAIN:
        rows, columns = entry.shape
        blocks = (blocks_in(rows), blocks_in(columns))
        return Work(
            action="quantise",
            group=group,
            source=entry,
            piece=Piece(name=tensor.name, dtype=_FP8, shape=entry.shape),
            scale_piece=Piece(name=f"{tensor.name}_scale_inv", dtype="F32", shape=blocks),
        )
    narrows = entry.dtype in ("F32", "F16") and _PLAIN[entry.dtype] == facts.precision
    if narrows and not is_kept_wide(tensor.canonical):
        piece = Piece(name=tensor.name, dtype="BF16", shape=entry.shape)
        return Work(action="cast", group=group, source=entry, piece=piece)
    return _copy(tensor, group)


def _to_bf16(facts: ModelFacts, stored: Mapping[str, list[StoredTensor]]) -> dict[str, list[Work]]:
    kinds = set(facts.precision.split("+"))
    if not kinds <= {"fp8_block", "fp8_tensor", "fp8_channel"}:
        is_plain = facts.precision in _PLAIN.values()
        raise CheckpointError(
            f"{facts.folder} is stored in {facts.precision}; only FP8 weights are converted to bf16",
            hint="there is nothing to dequantise" if is_plain else "start from the FP8 checkpoint of this model",
        )
    expected = _expected(facts)
    by_name = {t.canonical: t for tensors in stored.values() for t in tensors}
    fp8 = {name for name, tensor in by_name.items() if tensor.entry.dtype.startswith("F8_E4M3")}
    faults: list[str] = []
    out: dict[str, list[Work]] = {}
    for file, tensors in stored.items():
        out[file] = []
        for tensor in tensors:
            row = expected.get(tensor.canonical)
            group = row.row.part if row else "other"
            if tensor.canonical in fp8:
                scale = _scale_of(tensor, by_name, _declared_block(facts), faults)
                if scale is not None:
                    piece = Piece(name=tensor.name, dtype="BF16", shape=tensor.entry.shape)
                    work = Work(action="dequantise", group=group, source=tensor.entry, piece=piece, scale=scale)
                    out[file].append(work)
            elif weight_of_scale(tensor.canonical) not in fp8:
                out[file].append(_copy(tensor, group))
    if faults:
        raise CheckpointError(problems_text(f"{facts.folder}: weights that cannot be dequantised", _cut(faults)))
    return out


def _scale_of(
    tensor: StoredTensor, by_name: Mapping[str, StoredTensor], block: tuple[int, int], faults: list[str]
) -> Scale | None:
    """By name through all files, by shape for the kind. Only plain 2-D e4m3 with float scales is understood."""
    entry, stem = tensor.entry, tensor.canonical.removesuffix(".weight")
    endings = [".weight_scale_inv", ".weight_scale", *SCALE_ENDINGS]
    found = next((by_name[stem + ending] for ending in endings if stem + ending in by_name), None)
    if found is None or entry.dtype != _FP8 or len(entry.shape) != 2 or found.entry.dtype not in _SCALE_DTYPES:
        held = "no scale" if found is None else f"a {found.entry.dtype} scale"
        faults.append(f"{tensor.name} ({entry.dtype}, {list(entry.shape)}, {held}) is not a matrix of E4M3 with floats")
        return None
    (rows, columns), shape = entry.shape, found.entry.shape
    # a single block looks like one value for the whole tensor, and means the same
    if shape in ((), (1,), (1, 1)):
        return Scale(entry=found.entry, kind="tensor", block=block)
    if shape == (blocks_in(rows, block[0]), blocks_in(columns, block[1])):
        return Scale(entry=found.entry, kind="block", block=block)
    if shape in ((rows,), (rows, 1)):
        return Scale(entry=found.entry, kind="channel", block=block)
    faults.append(f"{tensor.name} {list(entry.shape)} has a scale of shape {list(shape)}")
    return None


def _declared_block(facts: ModelFacts) -> tuple[int, int]:
    declared = facts.config.quantization if facts.config else None
    return (declared.block_shape if declared else None) or (BLOCK, BLOCK)


def _copy(tensor: StoredTensor, group: str) -> Work:
    piece = Piece(name=tensor.name, dtype=tensor.entry.dtype, shape=tensor.entry.shape)
    return Work(action="copy", group=group, source=tensor.entry, piece=piece)


def _expected(facts: ModelFacts) -> dict[str, Expected]:
    if facts.config is None or not facts.has_layout:
        return {}
    return expected_tensors(family_layout(facts.config, facts.architecture))


def _cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _LISTED else [*lines[:_LISTED], f"and {len(lines) - _LISTED} more"]
