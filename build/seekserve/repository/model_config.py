"""One Triton model's configuration as data, and its text. What is rendered is read back and held against it (check.py).

Nothing is left to Triton's defaults or to auto-completion: batch size, transaction policy, instances and every tensor
are written out. A parameter that nobody set is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .environment import render_template

__all__ = ["CONFIG_FILE", "KIND_CPU_NOTES", "VERSION_FOLDER", "ModelConfig", "TensorConfig", "config_text"]

CONFIG_FILE = "config.pbtxt"
VERSION_FOLDER = "1"
KIND_CPU_NOTES = (
    "KIND_CPU on purpose: the engine, not Triton, owns the GPUs. With KIND_GPU Triton would start one instance on",
    "every GPU of the machine, each of them with all ranks of the engine.",
)

_TEMPLATE = "config.pbtxt.j2"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorConfig:
    name: str
    data_type: str
    """With the prefix: TYPE_INT32."""
    dims: tuple[int, ...]
    is_optional: bool = False
    is_ragged: bool = False
    is_reshaped: bool = False
    """Handed to the backend as a scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    name: str
    backend: str
    max_batch_size: int
    is_decoupled: bool
    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    instances: int = 1
    instance_kind: str = "KIND_CPU"
    has_dynamic_batching: bool = False
    queue_delay_us: int = 0
    max_queue_requests: int = 0
    """0: no limit in Triton's own queue."""


def config_text(
    model: ModelConfig,
    *,
    header: tuple[str, ...],
    batch_notes: tuple[str, ...] = (),
    instance_notes: tuple[str, ...] = (),
) -> str:
    """config.pbtxt; header and notes become comments."""
    values = {
        "model": model,
        "header": header,
        "batch_notes": batch_notes,
        "instance_notes": instance_notes,
        "parameters": [{"key": key, "value": value} for key, value in model.parameters.items()],
    }
    return render_template(_TEMPLATE, values)
