"""One row of TensorRT-LLM's iteration statistics as a measured step, or why it cannot be one.

Keys and their meaning: TensorRT-LLM's stats_serialization.py and docs, 1.0 to 1.3 (facts of the executor's
`inflightBatchingStats` and `kvCacheStats`). With the overlap scheduler `iterLatencyMS` spans about two loops, so a row
counts only where the release gives the clean time (`hostStepTimeMS`) or says that it does not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seekserve_backend.contract.fields import is_finite_number

__all__ = ["Iteration", "Unusable", "is_count", "read_iteration"]


@dataclass(frozen=True, slots=True)
class Unusable:
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    decode_tokens: int
    kv_tokens: int
    chunks: tuple[tuple[int, int], ...]
    step_ms: float


def read_iteration(row: Mapping[str, Any]) -> Iteration | Unusable:
    batch, kv = _object(row, "inflightBatchingStats"), _object(row, "kvCacheStats")
    generating, context_tokens = _count(batch, "numGenRequests"), _count(batch, "numCtxTokens")
    if generating is None or context_tokens is None:
        return Unusable("no numGenRequests or numCtxTokens")
    if generating + context_tokens == 0:
        return Unusable("nothing was computed in it")
    if _object(row, "specDecodingStats"):
        return Unusable("speculative decoding, of which the number of tokens is not known")
    step_ms = _step_ms(row)
    if step_ms is None:
        return Unusable("its time spans two loops (overlap scheduler) and there is no hostStepTimeMS")
    resident = _resident_tokens(batch, kv)
    if resident is None:
        return Unusable("no numGenKvTokens and no usedNumBlocks")
    before = _count(batch, "numCtxKvTokens") or 0
    chunks = ((before, context_tokens),) if context_tokens else ()
    return Iteration(decode_tokens=generating, kv_tokens=resident, chunks=chunks, step_ms=step_ms)


def is_count(value: Any) -> bool:
    """A whole number from 0 on; JSON's true is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _step_ms(row: Mapping[str, Any]) -> float | None:
    names = ("hostStepTimeMS", "iterLatencyMS") if row.get("schedulerMode") == "non_overlap" else ("hostStepTimeMS",)
    times = [float(row[name]) for name in names if is_finite_number(row.get(name))]
    return next((ms for ms in times if ms > 0.0), None)


def _resident_tokens(batch: Mapping[str, Any], kv: Mapping[str, Any]) -> int | None:
    exact = _count(batch, "numGenKvTokens")
    if exact is not None:
        return exact
    used, block_tokens = _count(kv, "usedNumBlocks"), _count(kv, "tokensPerBlock")
    return None if used is None or block_tokens is None else used * block_tokens


def _object(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def _count(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    return value if is_count(value) else None
