"""What an error text of the stock model means: BLS hands every error over as INTERNAL, so the words decide.

An unknown text is of its request alone. The texts are Triton's (core, python_backend) and TensorRT-LLM's own.
"""

from __future__ import annotations

import enum

__all__ = ["Fault", "fault_of"]


class Fault(enum.Enum):
    FULL = "its queue is full"
    TIMED_OUT = "its queue took too long"
    INVALID = "it does not take such a request"
    GONE = "it is not there or does not work"
    """Of the model as a whole: no request can do better until somebody loads it again."""
    OTHER = "it failed"


_GONE = (
    "is not healthy",
    "is not ready",
    "no available versions",
    "unknown model",
    "is not found",
    "failed to find",
    "is not available",
    "executor has been shut down",
    "cannot enqueue",
)
_FULL = ("exceeds maximum queue size", "maximum queue size of", "queue is full")
_TIMED_OUT = ("request timeout expired", "timed out", "timeout")
_INVALID = (
    "exceeds maximum input length",
    "exceeds maximum sequence length",
    "unexpected shape",
    "unexpected datatype",
    "unexpected inference input",
    "unexpected inference output",
    "is not within acceptable range",
    "incorrect sampling config",
    "is not present in the request",
    "request id is not provided",
    "only supported if model is deployed",
)


def fault_of(text: str) -> Fault:
    low = text.lower()
    for fault, marks in (
        (Fault.GONE, _GONE),
        (Fault.FULL, _FULL),
        (Fault.TIMED_OUT, _TIMED_OUT),
        (Fault.INVALID, _INVALID),
    ):
        if any(mark in low for mark in marks):
            return fault
    return Fault.OTHER
