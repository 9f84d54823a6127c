"""TensorRT engines: checkpoint -> converted or quantised checkpoint -> trtllm-build -> bundle, up to 1.3.0rc20.

build_trtllm_engine     the whole job, resumable step by step
"""

from __future__ import annotations

from .build import build_trtllm_engine
from .host import Host
from .process import Run

__all__ = [
    "Host",
    "Run",
    "build_trtllm_engine",
]
