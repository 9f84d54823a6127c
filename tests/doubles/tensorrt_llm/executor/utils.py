"""Errors of single requests and of the engine."""

from __future__ import annotations

from tensorrt_llm._double.profile import DOUBTS, PROFILE

__all__ = ["CppExecutorError", "EngineDeadError", "HAS_DEAD_ERROR", "RequestError"]

HAS_DEAD_ERROR = PROFILE.has_dead_error if DOUBTS.has_dead_error is None else DOUBTS.has_dead_error


class RequestError(RuntimeError):
    """One request failed."""


class CppExecutorError(RuntimeError):
    """The C++ executor failed."""

    def __init__(self, message: str | None = None) -> None:
        self.message = message
        self.stack_trace = ""
        super().__init__(message)


class EngineDeadError(RuntimeError):
    """The engine is gone for good; exported only where the release has it."""
