"""How far the weights of one checkpoint are from those of another, by part of the model. Imports torch.

Relative error is the root mean square of the difference over that of the baseline, both multiplied out to float32. One
tensor is in memory at a time. Nothing is said about answers: that is what the tasks are for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from seekserve.checkpoint import ModelFacts, read_checkpoint
from seekserve.checkpoint.layout import expected_tensors, layout
from seekserve.errors import CheckpointError
from seekserve.evaluate.target import Progress
from seekserve_backend.engines.port import EngineError
from seekserve_backend.engines.reference.shards import SCALE_SUFFIX, ShardReader, read_json

__all__ = ["GroupError", "TensorError", "WeightErrors", "measure_weight_errors"]

_WORST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorError:
    name: str
    part: str
    parameters: int
    difference_squared: float
    baseline_squared: float

    @property
    def relative(self) -> float:
        """Infinite where the baseline is all zero and the tensor is not; not a number where either holds such."""
        return _relative(self.difference_squared, self.baseline_squared)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupError:
    part: str
    """attention, dense_mlp, routed_experts, ...: as `seekserve inspect` names them."""
    tensors: int
    parameters: int
    relative: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightErrors:
    precision: str
    baseline: Path
    baseline_precision: str
    groups: tuple[GroupError, ...]
    """Those with a difference, the largest error first."""
    equal_parts: tuple[str, ...]
    """Parts without any difference."""
    worst: tuple[TensorError, ...]
    not_compared: int
    """Tensors that only one of the two has, for example MTP layers."""


def measure_weight_errors(folder: Path, baseline: Path, progress: Progress) -> WeightErrors:
    """Raises CheckpointError for what cannot be read, and for two different models."""
    facts, other = read_checkpoint(folder), read_checkpoint(baseline)
    try:
        errors, not_compared = _tensor_errors(facts, other, progress)
    except EngineError as error:
        raise CheckpointError(f"the weights cannot be compared: {error}") from error
    groups = sorted((_group(part, errors) for part in {error.part: None for error in errors}), key=_by_error)
    ranked = sorted((error for error in errors if error.difference_squared != 0), key=_by_error)
    return WeightErrors(
        precision=facts.precision,
        baseline=baseline,
        baseline_precision=other.precision,
        groups=tuple(group for group in groups if group.worst != 0),
        equal_parts=tuple(group.part for group in groups if group.worst == 0),
        worst=tuple(ranked[:_WORST]),
        not_compared=not_compared,
    )


def _tensor_errors(facts: ModelFacts, other: ModelFacts, progress: Progress) -> tuple[list[TensorError], int]:
    reader, other_reader = _reader(facts.folder), _reader(other.folder)
    names, others = _weights(reader), _weights(other_reader)
    shared = [name for name in names if name in others]
    if not shared:
        raise CheckpointError(f"{facts.folder} and {other.folder} have no tensor of the same name: not the same model")
    parts = _parts(facts)
    errors = []
    for done, name in enumerate(shared, start=1):
        errors.append(_compare(name, parts.get(name, "other"), reader.tensor(name), other_reader.tensor(name)))
        progress(done, len(shared))
    return errors, len(names) + len(others) - 2 * len(shared)


def _reader(folder: Path) -> ShardReader:
    return ShardReader(folder, read_json(folder / "config.json", folder))


def _weights(reader: ShardReader) -> dict[str, None]:
    return {
        name: None
        for name in sorted(reader.shard_of)
        if not (name.endswith(SCALE_SUFFIX) and name.removesuffix(SCALE_SUFFIX) in reader.shard_of)
    }


def _parts(facts: ModelFacts) -> Mapping[str, str]:
    if facts.config is None:
        return {}
    expected = expected_tensors(layout(facts.config, facts.architecture))
    return {name: each.row.part for name, each in expected.items()}


def _compare(name: str, part: str, tensor: torch.Tensor, baseline: torch.Tensor) -> TensorError:
    if tensor.shape != baseline.shape:
        raise CheckpointError(
            f"{name} has shape {list(tensor.shape)} here and {list(baseline.shape)} in the baseline: not the same model"
        )
    wide = baseline.float()
    return TensorError(
        name=name,
        part=part,
        parameters=tensor.numel(),
        difference_squared=_squared(tensor.float() - wide),
        baseline_squared=_squared(wide),
    )


def _squared(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


def _group(part: str, errors: list[TensorError]) -> GroupError:
    mine = [error for error in errors if error.part == part]
    return GroupError(
        part=part,
        tensors=len(mine),
        parameters=sum(error.parameters for error in mine),
        relative=_relative(
            sum(error.difference_squared for error in mine), sum(error.baseline_squared for error in mine)
        ),
        worst=min(mine, key=_by_error).relative,
    )


def _relative(difference_squared: float, baseline_squared: float) -> float:
    if baseline_squared == 0:
        return 0.0 if difference_squared == 0 else math.inf
    return math.sqrt(difference_squared / baseline_squared)


def _by_error(item: GroupError | TensorError) -> tuple[bool, float, str]:
    """Largest first, what is not a number before all."""
    value = item.relative
    return (not math.isnan(value), -value if not math.isnan(value) else 0.0, item.part)
