"""A strict double of the TensorRT-LLM package for tests: what the public sources document, and nothing else.

See README.md beside this folder. The import prints a banner and replaces sys.excepthook, as the real one does.
"""

from __future__ import annotations

import logging as _logging
import sys as _sys
from typing import Any

from tensorrt_llm._double.profile import PROFILE as _PROFILE
from tensorrt_llm.disaggregated_params import DisaggregatedParams
from tensorrt_llm.llmapi import LLM, LlmArgs, TorchLlmArgs
from tensorrt_llm.sampling_params import SamplingParams

__all__ = ["LLM", "DisaggregatedParams", "LlmArgs", "SamplingParams", "TorchLlmArgs", "__version__", "logger"]
__version__ = _PROFILE.version
logger = _logging.getLogger("tensorrt_llm")


def __getattr__(name: str) -> Any:
    if name == "KvCacheConfig":
        from tensorrt_llm import llmapi

        return llmapi.KvCacheConfig
    raise AttributeError(f"tensorrt_llm {__version__} has no {name}")


def _excepthook(kind: Any, error: Any, trace: Any) -> None:
    _sys.__excepthook__(kind, error, trace)


_sys.excepthook = _excepthook
print(f"[TensorRT-LLM] TensorRT-LLM version: {__version__}")
