"""How much the cache holds: blocks, tokens, whole sequences; which cap decides; how many requests run at once.

Tokens are blocks times block size, never concurrency times length. With attention DP or pipeline stages the smallest
rank decides for all, since every rank of a pool holds the same requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .memory import RankMemory

__all__ = ["Capacity", "CapRequest", "capacity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapRequest:
    pools: int
    block_tokens: int
    fraction: float
    """Of what is free after loading."""
    max_tokens: int | None
    """Cap over all pools together; None = none given."""
    max_batch_size: int
    """Of one pool: its fixed cost per request is set aside before blocks are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    pools: int
    block_tokens: int
    blocks_per_pool: int
    fraction_tokens: int
    """What the fraction alone would give, all pools."""
    asked_tokens: int | None
    binding_cap: str
    """`fraction` or `tokens`."""
    reserved_requests: int
    """Requests of one pool whose fixed cost is set aside."""
    deciding_rank: str

    @property
    def blocks(self) -> int:
        return self.blocks_per_pool * self.pools

    @property
    def tokens(self) -> int:
        return self.blocks * self.block_tokens

    def sequences(self, length_tokens: int) -> int:
        """Whole sequences of this length that can run to completion at once."""
        per_pool = self.blocks_per_pool // -(-max(length_tokens, 1) // self.block_tokens)
        return per_pool * self.pools

    def concurrency(self, isl: int, osl: int) -> Concurrency:
        return Concurrency(
            admitted=self.sequences(isl),
            steady=self.sequences(isl + osl // 2),
            completing=self.sequences(isl + osl),
        )

    def kv_bytes(self, rank: RankMemory) -> int:
        return (
            self.blocks_per_pool * self.block_tokens * rank.kv_bytes_per_token
            + self.reserved_requests * rank.kv_bytes_per_request
        )

    @property
    def verdict(self) -> str:
        if self.asked_tokens is None:
            return f"the fraction decides: {self.fraction_tokens:,} tokens"
        asked, fraction = f"{self.asked_tokens:,} tokens asked for", f"{self.fraction_tokens:,} by the fraction"
        winner, loser = (asked, fraction) if self.binding_cap == "tokens" else (fraction, asked)
        return f"{winner} win as the smaller cap; the other would be {loser}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """Requests at once, all pools: three different answers that are often taken for one."""

    admitted: int
    """Prompts that fit, their answers not yet counted."""
    steady: int
    """With answers half-way, as in a mixed stream."""
    completing: int
    """That can all run to their end without eviction."""


def capacity(ranks: Sequence[RankMemory], request: CapRequest) -> Capacity:
    """Zero blocks when the rank that decides has nothing left: the caller says what that means."""
    # A stage whose layers keep nothing per token (windows only) bounds nothing.
    by_rank = [(_blocks(rank, request), rank.label) for rank in ranks if rank.kv_bytes_per_token]
    fraction_blocks, label = min(by_rank, key=lambda found: found[0], default=(0, ranks[0].label))
    fraction_tokens = fraction_blocks * request.block_tokens * request.pools
    blocks, binding = fraction_blocks, "fraction"
    if request.max_tokens is not None:
        asked = request.max_tokens // request.pools // request.block_tokens
        if asked < fraction_blocks:
            blocks, binding = asked, "tokens"
    return Capacity(
        pools=request.pools,
        block_tokens=request.block_tokens,
        blocks_per_pool=blocks,
        fraction_tokens=fraction_tokens,
        asked_tokens=request.max_tokens,
        binding_cap=binding,
        reserved_requests=request.max_batch_size if any(rank.kv_bytes_per_request for rank in ranks) else 0,
        deciding_rank=label,
    )


def _blocks(rank: RankMemory, request: CapRequest) -> int:
    budget = int(max(rank.free_bytes, 0) * request.fraction) - request.max_batch_size * rank.kv_bytes_per_request
    return max(budget, 0) // (rank.kv_bytes_per_token * request.block_tokens)
