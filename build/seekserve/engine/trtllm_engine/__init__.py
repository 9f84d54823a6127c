"""TensorRT engines: checkpoint -> converted or quantised checkpoint -> trtllm-build -> bundle, up to 1.3.0rc20.

model_in                the model as a plan must see it when quantize.py makes other weights
build_trtllm_engine     the whole job, resumable step by step
read_engine_config      what an engine folder says about itself, in both shapes of its config.json
engine_faults           every difference between an engine and its bundle
"""

from __future__ import annotations

from .build import build_trtllm_engine
from .config import EngineFacts, engine_faults, read_engine_config
from .host import Host
from .precision import QUANTISED_WEIGHTS, model_in
from .process import Run

__all__ = [
    "QUANTISED_WEIGHTS",
    "EngineFacts",
    "Host",
    "Run",
    "build_trtllm_engine",
    "engine_faults",
    "model_in",
    "read_engine_config",
]
