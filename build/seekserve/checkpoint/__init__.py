"""What the files of a checkpoint say: family, shapes, parameters, precision, KV cost, and all that is wrong with them.

Reads JSON and safetensors headers, imports nothing from a checkpoint and no torch. `read_checkpoint` never fails on bad
content (findings), `verify` does.
"""

from __future__ import annotations

from .config import ModelConfig, read_config
from .facts import ModelFacts, read_checkpoint, tensor_locations, verify
from .families import Identity
from .findings import Finding, Severity
from .headers import TensorEntry
from .kv import KvCost, kv_cost
from .parameters import Parameters

__all__ = [
    "Finding",
    "Identity",
    "KvCost",
    "ModelConfig",
    "ModelFacts",
    "Parameters",
    "Severity",
    "TensorEntry",
    "kv_cost",
    "read_checkpoint",
    "read_config",
    "tensor_locations",
    "verify",
]
