"""What precision the projections are really stored in, by header dtype and the shape of the scale, never by name.

Also the scale rules: every FP8 weight has one scale of the right shape, no scale is alone, no weight has two kinds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .findings import Collector, Severity
from .headers import TensorEntry
from .layout import Expected

__all__ = ["PACKED_DTYPES", "SCALE_ENDINGS", "PrecisionFound", "examine_precision", "packing", "weight_of_scale"]

# ending of a scale -> ending of the weight it belongs to
SCALE_ENDINGS: Final = {
    ".weight_scale_inv": ".weight",
    ".weight_scale": ".weight",
    ".weight_scale_2": ".weight",
    ".input_scale": ".weight",
    ".activation_scale": ".weight",
    ".pre_quant_scale": ".weight",
    ".scale": ".weight",
}
_ENDINGS: Final = tuple(SCALE_ENDINGS)
_SECONDARY: Final = (".weight_scale_2", ".input_scale", ".activation_scale", ".pre_quant_scale")
_MAIN: Final = ("weight_scale_inv", "weight_scale", "scale")
_PLAIN: Final = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp64"}
_FP8: Final = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
PACKED_DTYPES: Final = ("U8", "I8")
_SCALE_DTYPES: Final = ("F32", "BF16", "F16", "F8_E8M0", "F8_E4M3", "U8")
DEFAULT_BLOCK: Final = (128, 128)

Signature = tuple[int, str, int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionFound:
    kinds: Mapping[str, int]
    """Kind -> number of projections."""
    unplaced: tuple[str, ...]
    """Names that are neither expected nor the scale of a weight that is there."""

    @property
    def main(self) -> str:
        """`fp8_block`, `bf16`, ...; quantised kinds joined by `+`, plain ones named only when nothing is quantised."""
        quantised = sorted(kind for kind in self.kinds if kind not in _PLAIN.values())
        plain = sorted(self.kinds, key=lambda kind: -self.kinds[kind])
        return "+".join(quantised) if quantised else (plain[0] if plain else "unknown")


def weight_of_scale(name: str) -> str | None:
    """The weight that a scale belongs to; None for what is no scale."""
    if not name.endswith(_ENDINGS):
        return None
    stem, _, last = name.rpartition(".")
    ending = f".{last}"
    return stem + SCALE_ENDINGS[ending] if ending in SCALE_ENDINGS else None


def packing(entry: TensorEntry) -> int:
    """Elements per stored byte-sized element: two 4-bit values share a U8 or I8."""
    return 2 if entry.dtype in PACKED_DTYPES else 1


def examine_precision(
    tensors: Mapping[str, TensorEntry],
    expected: Mapping[str, Expected],
    block: tuple[int, int] | None,
    findings: Collector,
) -> PrecisionFound:
    """`block` is the declared weight_block_size; scales are held against it, or against 128x128."""
    scales = [name for name in tensors if name.endswith(_ENDINGS) and _is_scale(name, tensors, expected)]
    used = {name[name.rfind(".") + 1 :] for name in scales}
    endings = tuple(ending for ending in _MAIN if ending in used)
    weights = _Weights(tensors, block or DEFAULT_BLOCK, endings)
    known_or_scale = expected.keys() | set(scales)
    unplaced = [name for name in tensors if name not in known_or_scale]
    for name, wanted in expected.items():
        entry = tensors.get(name)
        if entry is not None and (wanted[0].is_projection or entry[1] in _FP8):
            weights.add(name, entry, wanted)
    for name in unplaced:
        entry = tensors[name]
        # of an unknown family every matrix is taken for a projection
        is_matrix = name.endswith(".weight") and (
            entry.dtype in PACKED_DTYPES or (not expected and len(entry.shape) == 2)
        )
        if entry.dtype in _FP8 or is_matrix:
            weights.add(name, entry, None)
    weights.judge()
    if weights.scales_used != len(scales):
        unplaced += _check_owners(scales, tensors, weights.faults)
    weights.faults.report(findings, block or DEFAULT_BLOCK)
    _check_mixtures(weights, findings)
    return PrecisionFound(kinds=weights.kinds, unplaced=tuple(unplaced))


def _is_scale(name: str, tensors: Mapping[str, TensorEntry], expected: Mapping[str, Expected]) -> bool:
    """`.scale` is also what other modules call a parameter of theirs: there the weight beside it decides."""
    if not name.endswith(".scale"):
        return True
    weight = f"{name[:-5]}weight"
    return weight in tensors or weight in expected


def _check_owners(scales: list[str], tensors: Mapping[str, TensorEntry], faults: _Faults) -> list[str]:
    """Returns the scales whose weight is not there; each is reported as an orphan."""
    orphans = []
    for name in scales:
        weight = tensors.get(weight_of_scale(name) or "")
        file = tensors[name].file
        if weight is None:
            faults.orphan.append((file, name))
            orphans.append(name)
        elif weight.dtype in _PLAIN and not name.endswith(_SECONDARY):
            faults.scaled_plain.append((file, name))
    return orphans


class _Faults:
    def __init__(self) -> None:
        self.unscaled: list[tuple[str, str]] = []
        self.orphan: list[tuple[str, str]] = []
        self.scaled_plain: list[tuple[str, str]] = []
        self.misshapen: list[tuple[str, str]] = []
        self.dtype: list[tuple[str, str]] = []
        self.two_kinds: list[tuple[str, str]] = []

    def report(self, findings: Collector, block: tuple[int, int]) -> None:
        error = Severity.ERROR
        findings.group(
            error,
            "scale-missing",
            self.unscaled,
            "{n} quantised weights have no scale, their values cannot be read back",
        )
        findings.group(error, "scale-orphan", self.orphan, "{n} scales have no weight")
        findings.group(
            error, "scale-on-plain", self.scaled_plain, "{n} scales stand beside weights that are not quantised"
        )
        findings.group(
            error,
            "scale-shape",
            self.misshapen,
            f"{{n}} scales are neither one value nor ceil(rows/{block[0]}) x ceil(columns/{block[1]}) of their weight",
        )
        findings.group(error, "scale-dtype", self.dtype, "{n} scales have a dtype that no loader takes")
        findings.group(
            error,
            "scale-mixed",
            self.two_kinds,
            "{n} weights carry two kinds of scale, a loader cannot know which holds",
        )


class _Weights:
    """Sorts the weights by signature, then judges each signature once: tens of thousands share a few dozen."""

    def __init__(self, tensors: Mapping[str, TensorEntry], block: tuple[int, int], endings: tuple[str, ...]) -> None:
        self.tensors, self.block, self.endings = tensors, block, endings
        self.faults = _Faults()
        self.kinds: dict[str, int] = {}
        self.names_of_row: dict[tuple[str, bool], dict[str, list[list[str]]]] = {}
        self.scales_used = 0
        self.groups: dict[Signature, list[str]] = {}
        self.rows: dict[Signature, Expected | None] = {}

    def add(self, name: str, entry: TensorEntry, wanted: Expected | None) -> None:
        """Only sorts: weights of one row, shape and kind of scale are judged together."""
        # equal shapes share one tuple, so identities make a short key
        if entry[1] in _PLAIN:
            key: Signature = (id(wanted), entry[1], id(entry[2]), "", 0)
        else:
            stem = name[:-6]  # without `weight`
            key = (id(wanted), entry[1], id(entry[2]), "", 0)
            for ending in self.endings:
                scale = self.tensors.get(stem + ending)
                if scale is not None:
                    key = (id(wanted), entry[1], id(entry[2]), key[3] + ending + scale[1], id(scale[2]))
        names = self.groups.get(key)
        if names is None:
            self.groups[key] = [name]
            self.rows[key] = wanted
        else:
            names.append(name)

    def judge(self) -> None:
        for key, names in self.groups.items():
            wanted = self.rows[key]
            kind = self.kind_of(names, wanted)
            if kind is None:
                continue
            self.kinds[kind] = self.kinds.get(kind, 0) + len(names)
            if wanted is not None:
                row = (wanted.row.name, wanted.is_mtp)
                self.names_of_row.setdefault(row, {}).setdefault(kind, []).append(names)

    def kind_of(self, names: list[str], wanted: Expected | None) -> str | None:
        """All `names` have the same signature, so the first speaks for the others."""
        entry = self.tensors[names[0]]
        if entry.dtype in _PLAIN:
            return _PLAIN[entry.dtype]
        stem = names[0][:-6]
        endings = [ending for ending in self.endings if stem + ending in self.tensors]
        self.scales_used += len(endings) * len(names)
        if len(endings) != 1:
            hits = self.faults.two_kinds if endings else self.faults.unscaled
            hits += [(self.tensors[name].file, name) for name in names]
            return None
        ending, scale = endings[0], self.tensors[stem + endings[0]]
        if scale.dtype not in _SCALE_DTYPES:
            self.faults.dtype += [(entry.file, f"{name[:-6]}{ending} ({scale.dtype})") for name in names]
            return None
        kind = self._verdict(entry, scale, wanted)
        if kind == "w4a8_awq" and f"{stem}input_scale" not in self.tensors:
            kind = "w4a16_awq"  # no scale of the activations: they stay as they are
        if kind is None:
            shapes = f"{_by(scale.shape)} beside {_by(entry.shape)}"
            stems = [name[:-6] for name in names]
            self.faults.misshapen += [(self.tensors[s + ending].file, f"{s}{ending} {shapes}") for s in stems]
        return kind

    def _verdict(self, entry: TensorEntry, scale: TensorEntry, wanted: Expected | None) -> str | None:
        if entry.dtype in PACKED_DTYPES:
            return "int8" if wanted is not None and wanted.shape == entry.shape else _packed_kind(entry, scale)
        if scale.shape in ((), (1,), (1, 1)) and (len(entry.shape) != 2 or scale.shape != self._blocks(entry.shape)):
            return "fp8_tensor"
        if len(entry.shape) != 2:
            return None
        rows, columns = entry.shape
        if wanted is not None and wanted.row.scale == "row":
            return "fp8_block" if scale.shape == (rows, _ceil(columns, self.block[1])) else None
        if scale.shape == self._blocks(entry.shape):
            return "fp8_block"
        return "fp8_channel" if scale.shape in ((rows,), (rows, 1)) else None

    def _blocks(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return _ceil(shape[0], self.block[0]), _ceil(shape[1], self.block[1])


def _packed_kind(entry: TensorEntry, scale: TensorEntry) -> str | None:
    """Two 4-bit values per byte; MXFP4 scales 32 of them by a power of two, NVFP4 16 of them by an FP8 number."""
    if len(entry.shape) != 2:
        return None
    rows, columns = entry.shape[0], entry.shape[1] * 2
    if scale.dtype in ("F8_E8M0", "U8") and scale.shape == (rows, _ceil(columns, 32)):
        return "mxfp4"
    if scale.dtype == "F8_E4M3" and scale.shape == (rows, _ceil(columns, 16)):
        return "nvfp4"
    if scale.dtype not in ("BF16", "F16", "F32"):
        return None
    # modelopt's AWQ pairs two rows in a byte, where the others pair two columns; its scales keep every row.
    return "w4a8_awq" if len(scale.shape) == 2 and scale.shape[0] == 2 * entry.shape[0] else "w4afp8"


def _check_mixtures(weights: _Weights, findings: Collector) -> None:
    """Loaders fuse the experts of a layer (and gate with up) into one tensor: one projection, one kind."""
    fused_rows: dict[tuple[str, bool], dict[str, list[list[str]]]] = {}
    for (row, is_mtp), by_kind in weights.names_of_row.items():
        for kind, lists in by_kind.items():
            fused_rows.setdefault((_fused(row), is_mtp), {}).setdefault(kind, []).extend(lists)
    groups: dict[str, dict[str, str]] = {}
    for by_kind in fused_rows.values():
        if len(by_kind) > 1:  # only then are the single names worth looking at
            for kind, lists in by_kind.items():
                for name in itertools.chain.from_iterable(lists):
                    groups.setdefault(_fused(name), {}).setdefault(kind, name)
    tensors = weights.tensors
    mixed = [kinds for kinds in groups.values() if len(kinds) > 1]
    hits = [(tensors[name].file, f"{name} ({kind})") for kinds in mixed for kind, name in kinds.items()]
    findings.group(
        Severity.ERROR,
        "precision-mixed",
        hits,
        f"{len(mixed)} projections that loaders fuse into one tensor are stored in several precisions",
    )


def _fused(name: str) -> str:
    head, experts, tail = name.partition(".experts.")
    if experts:
        number, _, rest = tail.partition(".")
        name = head + experts + (rest if number.isdecimal() else tail)
    for single, fused in (("gate_proj.", "gate_up."), ("up_proj.", "gate_up."), ("w1.", "w13."), ("w3.", "w13.")):
        if name.endswith(f"{single}weight"):
            return name.removesuffix(f"{single}weight") + fused
    return name


def _ceil(extent: int, block: int) -> int:
    return -(-extent // block)


def _by(shape: Iterable[int]) -> str:
    return "[" + ", ".join(str(extent) for extent in shape) + "]"
