"""What it means to let more requests run than the cache can bring to their end (MAX_UTILIZATION)."""

from __future__ import annotations

from .case import Case
from .finding import Finding

__all__ = ["pause_findings"]


def pause_findings(case: Case, capacity_policy: str) -> list[Finding]:
    """The working set is that of the expected lengths, answers half-way, as many at once as the engine takes."""
    if capacity_policy != "MAX_UTILIZATION":
        return []
    wish, capacity = case.wish, case.capacity
    each = wish.isl + wish.osl // 2
    requests = case.max_batch_size * case.shape.kv_pools
    needed = requests * each
    if needed <= capacity.tokens:
        message = (
            f"a request is started with room for what it is expected to hold, not for all of its max_tokens: "
            f"{requests} of ISL {wish.isl} / OSL {wish.osl} hold about {needed:,} of {capacity.tokens:,} tokens"
        )
        hint = "the policy `paced` learns lengths and keeps their sum below the cache; `fcfs` and `static` do not"
        return [Finding(rule="may-pause", about=("kv_cache.policy",), message=message, hint=hint, severity="note")]
    message = (
        f"{requests} requests of ISL {wish.isl} / OSL {wish.osl} would hold about {needed:,} tokens and the cache has "
        f"{capacity.tokens:,}: the engine pauses some and reads them again, which has cost 40 % of the throughput and "
        "nine times the P99 of TPOT (TensorRT-LLM #16827)"
    )
    fitting = max(capacity.tokens // each // case.shape.kv_pools, 1)
    hint = f"--max-batch-size {fitting}, or the policy `paced`, which starts no more than the cache is expected to hold"
    return [Finding(rule="may-pause", about=("kv_cache.policy",), message=message, hint=hint, severity="warning")]
