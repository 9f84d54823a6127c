"""The few facts about a model that a plan depends on, taken from what its files say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PlanFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    default_name: str
    """Name of the deployment when nobody gives one."""
    title: str
    """What the model is, for people."""
    architecture: str
    """How tensors and cache are laid out, e.g. `deepseek_v3`."""
    family: str
    kv_bytes_per_token: Mapping[str, int]
    """Of the whole model, by each of the contract's KV_DTYPES."""
    max_position_tokens: int | None
    weights_dtype: str
    weights_bytes: int
    """On disk."""
    run_bytes: int
    """What the weights take in memory while the engine runs."""
