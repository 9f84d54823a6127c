"""What FP8 pages would do to the KV latents of one model, measured layer by layer on real sequences. Imports torch.

The model runs once in float32 with a cache that rounds nothing; each latent row is compared with what an e4m3 page
would hold of it (`round_to_page_dtype`, the engine's own rule: no scale, saturating). Errors that compound from layer
to layer are therefore not in the table; they are in the accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seekserve.errors import CheckpointError
from seekserve.evaluate.target import Progress
from seekserve_backend.engines.port import EngineError
from seekserve_backend.engines.reference.cache import E4M3_MAX, pack_layout, round_to_page_dtype
from seekserve_backend.engines.reference.weights import load_model

__all__ = ["KvErrors", "LayerKvError", "measure_kv_errors"]

_PACK_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKvError:
    """Shares are of all values of the layer."""

    layer: int
    latent_relative: float
    """Root mean square of the rounding error over that of the values, compressed KV part of the rows."""
    rope_relative: float
    """The same for the part with rotary positions."""
    saturated_share: float
    """Beyond the largest e4m3 number: cut off."""
    zero_share: float
    """Not zero, but too small for e4m3: lost."""
    largest: float
    """Largest absolute value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvErrors:
    tokens: int
    layers: tuple[LayerKvError, ...]
    limit: float = E4M3_MAX

    @property
    def worst(self) -> LayerKvError:
        return max(self.layers, key=lambda layer: max(layer.latent_relative, layer.rope_relative))

    @property
    def saturated_share(self) -> float:
        return sum(layer.saturated_share for layer in self.layers) / len(self.layers)

    @property
    def zero_share(self) -> float:
        return sum(layer.zero_share for layer in self.layers) / len(self.layers)


def measure_kv_errors(weights: Path, sequences: Sequence[tuple[int, ...]], progress: Progress) -> KvErrors:
    """`sequences` are token ids, prompt and answer together; at least one. Raises CheckpointError."""
    try:
        model = load_model(weights).model
    except EngineError as error:
        raise CheckpointError(f"the model cannot be run: {error}") from error
    recorder = _Recorder(int(model.config.num_hidden_layers))
    done = 0
    for pack in _packs(sequences):
        _run(model, pack, recorder)
        done += len(pack)
        progress(done, len(sequences))
    return KvErrors(tokens=sum(map(len, sequences)), layers=tuple(recorder.layers()))


def _packs(sequences: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Short ones share a pass; a long one gets its own."""
    pack: list[tuple[int, ...]] = []
    for sequence in sequences:
        if pack and sum(map(len, pack)) + len(sequence) > _PACK_TOKENS:
            yield pack
            pack = []
        pack.append(sequence)
    if pack:
        yield pack


@torch.inference_mode()
def _run(model: Any, pack: Sequence[tuple[int, ...]], recorder: _Recorder) -> None:
    longest = max(map(len, pack))
    # One block for each sequence: only positions and mask are used, since nothing is paged here.
    tables = torch.arange(len(pack))[:, None]
    described = pack_layout(
        tables, [0] * len(pack), [len(sequence) for sequence in pack], block_tokens=longest, dtype=model.dtype
    )
    model(
        input_ids=torch.tensor([[token for sequence in pack for token in sequence]]),
        position_ids=described.positions,
        attention_mask=described.mask,
        cache=recorder,
        use_cache=True,
        logits_to_keep=described.last_rows,
    )


class _Recorder:
    """Stands where the paged cache would: passes the latents on as they came and adds up what rounding does to them."""

    def __init__(self, layers: int) -> None:
        self._sums = [_Sums() for _ in range(layers)]

    def update(
        self, kv: torch.Tensor, rope: torch.Tensor, layer_idx: int, **_ignored: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sums = self._sums[layer_idx]
        for part, values in enumerate((kv.float(), rope.float())):
            rounded = round_to_page_dtype(values, "fp8_e4m3").float()
            sums.error[part] += float((rounded - values).square().sum(dtype=torch.float64))
            sums.value[part] += float(values.square().sum(dtype=torch.float64))
            sums.saturated += int((values.abs() > E4M3_MAX).sum())
            sums.zero += int(((rounded == 0) & (values != 0)).sum())
            sums.count += values.numel()
            sums.largest = max(sums.largest, float(values.abs().max()))
        return kv, rope

    def layers(self) -> Iterator[LayerKvError]:
        for layer, sums in enumerate(self._sums):
            relative = [math.sqrt(e / v) if v else 0.0 for e, v in zip(sums.error, sums.value, strict=True)]
            yield LayerKvError(
                layer=layer,
                latent_relative=relative[0],
                rope_relative=relative[1],
                saturated_share=sums.saturated / max(1, sums.count),
                zero_share=sums.zero / max(1, sums.count),
                largest=sums.largest,
            )


class _Sums:
    __slots__ = ("count", "error", "largest", "saturated", "value", "zero")

    def __init__(self) -> None:
        self.error = [0.0, 0.0]
        self.value = [0.0, 0.0]
        self.count = self.saturated = self.zero = 0
        self.largest = 0.0
