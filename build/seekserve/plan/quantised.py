"""The model as its engine will hold it: plain weights of a checkpoint, in the precision that quantize.py makes of them.

For the plan, whose memory must be that of the engine and not of the checkpoint. Makes nothing itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from seekserve.errors import ConflictError

from .model import Model
from .storage import Storage, storage_of_kind

__all__ = ["PLAIN_WEIGHTS", "QUANTISED_WEIGHTS", "model_in"]

PLAIN_WEIGHTS: Final = ("bf16", "fp16", "fp32")
_AWQ: Final = Storage(4, 2, (1, 128))
QUANTISED_WEIGHTS: Final = ("fp8_tensor", "awq", "w4a8_awq", "int8")
"""What a build can make; which of them for which model, `engine.trtllm_engine.recipe` knows."""


def model_in(model: Model, weights: str) -> Model:
    """Raises ConflictError when the checkpoint's weights are quantised already, in another way."""
    if weights == model.precision:
        return model
    if model.precision not in PLAIN_WEIGHTS or weights not in QUANTISED_WEIGHTS:
        raise ConflictError(
            f"weights in {weights} cannot be made of the checkpoint's {model.precision}",
            hint=f"of {', '.join(PLAIN_WEIGHTS)} weights can be made {', '.join(QUANTISED_WEIGHTS)}",
        )
    storage = _AWQ if "awq" in weights else storage_of_kind(weights)
    assert storage is not None, weights
    groups = tuple(replace(g, storage=storage) if g.name in model.quantisable else g for g in model.groups)
    return replace(model, precision=weights, groups=groups)
