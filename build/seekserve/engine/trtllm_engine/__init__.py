"""TensorRT engines: checkpoint -> converted or quantised checkpoint -> trtllm-build -> bundle, up to 1.3.0rc20.

model_in                the model as a plan must see it when quantize.py makes other weights
build_trtllm_engine     the whole job, resumable step by step
"""

from __future__ import annotations

from .build import build_trtllm_engine
from .host import Host
from .precision import QUANTISED_WEIGHTS, model_in
from .process import Run

__all__ = [
    "QUANTISED_WEIGHTS",
    "Host",
    "Run",
    "build_trtllm_engine",
    "model_in",
]
