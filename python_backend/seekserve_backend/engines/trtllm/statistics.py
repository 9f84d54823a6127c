"""The newest of TensorRT-LLM's iteration statistics, read into the few numbers that the port knows.

Rows exist only for iterations that ran a batch, come in bursts and lag by about 0.2 s; keys differ between releases and
nested objects can be null. They are never a sign of life, and never say what is free: blocks that a running request
has yet to write are in no row.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "Statistics", "read_row"]

_log = logging.getLogger(__name__)
_FRESH_S = 2.0
_SMALLER_THAN_PLANNED = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one row says; None where it does not."""

    total_blocks: int | None
    """Of rank 0's pool, in the engine's own block size."""
    block_tokens: int | None
    used_blocks: int | None
    reused_blocks: int | None
    active: int | None
    queued: int | None


def read_row(row: Any) -> Row:
    data = json.loads(row) if isinstance(row, (str, bytes)) else row
    data = data if isinstance(data, Mapping) else {}
    kv = _object(data, "kvCacheStats")
    active = _number(data, "numActiveRequests")
    return Row(
        total_blocks=_number(kv, "maxNumBlocks"),
        block_tokens=_number(kv, "tokensPerBlock"),
        used_blocks=_number(kv, "usedNumBlocks"),
        reused_blocks=_number(kv, "reusedBlocks"),
        active=active,
        queued=_queued(data, active),
    )


class Statistics:
    """`take` on the event loop, the rest from any thread: what is shared is replaced whole, never changed."""

    def __init__(self, *, planned_blocks: int, block_tokens: int, pools: int) -> None:
        self._planned_blocks = planned_blocks
        self._block_tokens = block_tokens
        self._pools = pools
        self._row: Row | None = None
        self._at_s = 0.0
        self._total_blocks: int | None = None

    def take(self, raw: Any, now_s: float) -> None:
        row = read_row(raw)
        self._row, self._at_s = row, now_s
        if self._total_blocks is None and row.total_blocks:
            self._total_blocks = self._in_our_blocks(row.total_blocks, row.block_tokens)
            self._compare(self._total_blocks)

    @property
    def total_blocks(self) -> int:
        """The engine's own count once it has said it, in blocks of the bundle's size; the plan's until then."""
        return self._total_blocks or self._planned_blocks

    @property
    def reused_blocks(self) -> int | None:
        return None if self._row is None else self._row.reused_blocks

    def queued(self, now_s: float, *, is_idle: bool) -> int | None:
        """None when the last row is too old to say: before an idle time it may show requests that are long gone."""
        if is_idle:
            return 0
        return self._row.queued if self._row is not None and now_s - self._at_s <= _FRESH_S else None

    def _in_our_blocks(self, blocks: int, block_tokens: int | None) -> int:
        """The engine may have another block size than was planned: FlashMLA on Hopper makes it 64 by itself."""
        return max(1, blocks * (block_tokens or self._block_tokens) * self._pools // self._block_tokens)

    def _compare(self, total_blocks: int) -> None:
        if total_blocks < _SMALLER_THAN_PLANNED * self._planned_blocks:
            _log.warning(
                "the engine has %d KV blocks where the plan has %d: it holds fewer requests at once; something "
                "else uses GPU memory, or kv_cache_config limits it (see llm_args.yaml in the bundle)",
                total_blocks,
                self._planned_blocks,
            )
        else:
            _log.info("the engine has %d KV blocks, the plan has %d", total_blocks, self._planned_blocks)


def _queued(data: Mapping[str, Any], active: int | None) -> int | None:
    """Held but not computed: in the executor's queue, active without a place in the batch, or paused."""
    waiting = _number(data, "numQueuedRequests")
    if waiting is None:
        return None
    batch = _object(data, "inflightBatchingStats")
    scheduled = _number(batch, "numScheduledRequests")
    unscheduled = 0 if active is None or scheduled is None else max(0, active - scheduled)
    return waiting + unscheduled + (_number(batch, "numPausedRequests") or 0)


def _object(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(data: Mapping[str, Any], key: str) -> int | None:
    value = data.get(key)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
