"""Errors and results, as `tensorrt_llm.executor` exports them; EngineDeadError only where the release has it."""

from __future__ import annotations

from .request import LoRARequest, PromptAdapterRequest
from .result import CompletionOutput, GenerationResult
from .utils import HAS_DEAD_ERROR, CppExecutorError, RequestError

__all__ = [
    "CompletionOutput",
    "CppExecutorError",
    "GenerationResult",
    "LoRARequest",
    "PromptAdapterRequest",
    "RequestError",
]

if HAS_DEAD_ERROR:
    from .utils import EngineDeadError as EngineDeadError

    __all__ += ["EngineDeadError"]
