"""The configuration of a model of ours: tensors from the contract's tables, which the backend reads too."""

from __future__ import annotations

from collections.abc import Mapping

from seekserve_backend.contract.tensors import INPUTS, OUTPUTS, TensorSpec

from .model_config import ModelConfig, TensorConfig

__all__ = ["BACKEND_NAME", "BATCH_NOTES", "MAX_BATCH_SIZE", "STREAMING_PARAMETER", "our_model"]

BACKEND_NAME = "seekserve"
MAX_BATCH_SIZE = 8
"""Triton's batch dimension, not the engine's batch: with 8, a [1, 1] tensor passes and so does [2, 1], which the
backend then refuses by name. (0 would refuse the [1, 1] of stock clients; 1 would let Triton word the refusal.)"""
STREAMING_PARAMETER = "streaming"
"""`false` in a repository rendered with --no-streaming, absent otherwise; a decoupled flag that says otherwise was
edited. The backend then refuses requests with `stream`, of which Triton would let only the first response through."""
BATCH_NOTES = (
    "No dynamic_batching: the backend schedules. At least 1, because clients of the stock ensemble send [1, 1],",
    "which 0 refuses; above 1, so that a request with a larger batch reaches the backend and is refused there by name.",
)


def our_model(name: str, parameters: Mapping[str, str], *, instances: int = 1) -> ModelConfig:
    return ModelConfig(
        name=name,
        backend=BACKEND_NAME,
        max_batch_size=MAX_BATCH_SIZE,
        is_decoupled=parameters.get(STREAMING_PARAMETER) != "false",
        inputs=tuple(_tensor(spec, is_optional=True) for spec in INPUTS),
        outputs=tuple(_tensor(spec, is_optional=False) for spec in OUTPUTS),
        parameters=parameters,
        instances=instances,
    )


def _tensor(spec: TensorSpec, *, is_optional: bool) -> TensorConfig:
    return TensorConfig(name=spec.name, data_type=f"TYPE_{spec.data_type}", dims=spec.dims, is_optional=is_optional)
