"""The numbers of one iteration, from what the engine knows, for the statistics row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .blocks import BlockPool
from .stats import stats_row
from .work import Work

if TYPE_CHECKING:
    from .engine import Limits

__all__ = ["iteration_row"]


def iteration_row(
    numbers: Mapping[str, Any], batch: Sequence[tuple[Work, int]], left: Sequence[Work], pool: BlockPool, limits: Limits
) -> dict[str, Any]:
    """`batch` ran, with its prompt tokens; `left` is still active afterwards."""
    scheduled = [work for work, _ in batch]
    active = [*left, *(work for work in scheduled if work not in left)]
    contexts = sum(tokens > 0 for _, tokens in batch)
    return stats_row(
        {
            **numbers,
            "overlaps": limits.overlaps,
            "active": len(active),
            "max_active": limits.max_batch_size,
            "kv_total": pool.total_blocks,
            "kv_free": pool.free_blocks,
            "kv_used": pool.used_blocks,
            "tokens_per_block": pool.tokens_per_block,
            "allocated": pool.allocated,
            "reused": pool.reused,
            "missed": pool.missed,
            "scheduled": len(scheduled),
            "contexts": contexts,
            "generations": len(scheduled) - contexts,
            "generation_kv_tokens": sum(work.longest_tokens for work, tokens in batch if not tokens),
            "max_batch": limits.max_batch_size,
            "max_tokens": limits.max_num_tokens,
            "requests": [_request_row(work, work in scheduled) for work in active] if limits.request_stats else None,
        },
        is_torch=limits.is_torch,
        has_speculation=limits.draft_tokens > 0,
    )


def _request_row(work: Work, is_scheduled: bool) -> dict[str, Any]:
    stage = "CONTEXT_IN_PROGRESS" if work.is_context else "GENERATION_IN_PROGRESS"
    holding = work.holding
    found = holding.reused + holding.missed if holding else 0
    return {
        "id": work.id,
        "stage": "GENERATION_COMPLETE" if work.is_finished else "QUEUED" if holding is None else stage,
        "contextPrefillPosition": work.computed_tokens,
        "numGeneratedTokens": len(work.sequences[0].token_ids),
        "avgNumDecodedTokensPerIter": 0.0,
        "scheduled": is_scheduled,
        "paused": False,
        "disServingStats": None,
        "allocTotalBlocksPerRequest": holding.allocated if holding else 0,
        "allocNewBlocksPerRequest": holding.allocated if holding else 0,
        "reusedBlocksPerRequest": holding.reused if holding else 0,
        "missedBlocksPerRequest": holding.missed if holding else 0,
        "kvCacheHitRatePerRequest": holding.reused / found if holding and found else 0.0,
    }
