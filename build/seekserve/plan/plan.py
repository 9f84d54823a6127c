"""The Plan: every value that a deployment is built from, frozen, each with the place it came from.

Bundle, renderer, backend and `status` all read what is resolved here, so nothing is decided twice. A value that nobody
set is UNSET in `Inputs` and has a default (with that source) in `Plan`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.step_model import StepModel

from .deployment import Deployment

__all__ = ["UNSET", "Plan", "Source", "Unset"]


class Unset(enum.Enum):
    """The state of an input that the user did not give; distinct from None, which can be a wish."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = Unset.UNSET


class Source(str, enum.Enum):
    """Order of precedence: an earlier one wins over a later one."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    PRESET = "preset"
    CHECKPOINT = "checkpoint"
    DERIVED = "derived"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One engine replica and its limits."""

    name: str
    family: str
    engine: str
    """One of the contract's ENGINE_KINDS."""
    gpu: str | None
    tp: int
    pp: int
    ep: int
    weights_dtype: str
    weights_bytes: int
    limits: Limits
    kv: KvCache
    step_model: StepModel | None
    sources: Mapping[str, str]
    """Dotted name of each resolved value -> its origin: `limits.max_batch_size` -> `flag --max-batch-size`."""
    deployment: Deployment | None = None
    """The GPU half: shape, memory of every rank, capacity. None for engines that run on the CPU."""

    @property
    def prompt_limit_tokens(self) -> int:
        """One token must be produced, so a prompt may hold one less than the sequence limit; less without chunks."""
        if self.deployment is not None:
            return self.deployment.case.prompt_limit_tokens
        return self.limits.max_seq_len_tokens - 1
