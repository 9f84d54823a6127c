"""One way to lay a model over GPUs, worked out to its memory and capacity; what is compared and judged.

Values that nobody gave and that depend on the outcome (batch size, fraction) are settled here: the fraction is lowered
until CUDA graphs fit beside the cache, the batch to what the cache can carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .capacity import Capacity, CapRequest, Concurrency, capacity
from .gpus import Gpu
from .memory import MemoryRequest, RankMemory, rank_memories
from .model import Model
from .overheads import MIB, overheads
from .shape import Shape
from .support import Support

__all__ = ["Case", "Target", "Wish", "work_out"]

_FRACTION_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The machines and the engine."""

    gpu: Gpu
    gpus: int
    nodes: int
    engine: str
    version: str
    support: Support | None

    @property
    def gpus_per_node(self) -> int:
        return max(self.gpus // self.nodes, 1)

    @property
    def domain_gpus(self) -> int:
        """GPUs that reach each other without the network between nodes."""
        return max(self.gpus_per_node, min(self.gpu.domain_gpus, self.gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked of the engine; None where the outcome may decide."""

    max_seq_len_tokens: int
    max_batch_size: int | None
    """Of one attention-DP rank, as the engine counts it."""
    max_num_tokens: int | None
    prefill_chunk_tokens: int | None
    kv_dtype: str
    block_tokens: int
    fraction: float | None
    max_tokens: int | None
    isl: int
    osl: int
    chunked_prefill: bool
    cuda_graphs: bool
    mtp: int
    indexer_dtype: str
    rank0_overhead_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    model: Model
    target: Target
    wish: Wish
    shape: Shape
    max_batch_size: int
    max_num_tokens: int
    prefill_chunk_tokens: int
    fraction: float
    ranks: tuple[RankMemory, ...]
    capacity: Capacity
    sources: Mapping[str, str] = field(default_factory=dict)
    """Of the values settled here."""

    @property
    def replicas(self) -> int:
        return max(self.target.gpus // self.shape.gpus, 1)

    @property
    def worst(self) -> RankMemory:
        """The rank with the least to spare."""
        return min(self.ranks, key=lambda rank: rank.left_over_bytes)

    @property
    def most_weights_bytes(self) -> int:
        return max(rank.weights_bytes for rank in self.ranks)

    @property
    def loads(self) -> bool:
        return all(rank.free_bytes > 0 for rank in self.ranks)

    @property
    def fits(self) -> bool:
        """Loads, runs a full step, and holds one sequence of the asked length."""
        return self.loads and self.sequences >= 1 and self.worst.left_over_bytes >= 0

    @property
    def sequences(self) -> int:
        return self.capacity.sequences(self.wish.max_seq_len_tokens)

    @property
    def concurrency(self) -> Concurrency:
        return self.capacity.concurrency(self.wish.isl, self.wish.osl)

    @property
    def prompt_limit_tokens(self) -> int:
        """One token must be produced; without chunks the whole prompt must fit into one step."""
        longest = self.wish.max_seq_len_tokens - 1
        return longest if self.wish.chunked_prefill else min(longest, self.max_num_tokens)


def work_out(model: Model, target: Target, wish: Wish, shape: Shape) -> Case:
    """Never fails: what does not fit has no blocks."""
    figures = overheads()
    tokens = wish.max_num_tokens
    if tokens is None:
        tokens = figures.max_num_tokens_attention_dp if shape.attention_dp else figures.max_num_tokens
        tokens = max(tokens, wish.max_batch_size or 0)
    batch = wish.max_batch_size or min(figures.max_batch_size, tokens)
    case = _settle(model, target, wish, shape, tokens, batch)
    if wish.max_batch_size is not None:
        return case
    carried = _carried(case)
    if carried >= batch or not case.loads:
        return _with_source(case, "limits.max_batch_size", "default")
    smaller = max(carried // 8 * 8 if carried > 8 else carried, 1)
    reason = f"derived: what the cache carries at ISL {wish.isl} / OSL {wish.osl}"
    return _with_source(_settle(model, target, wish, shape, tokens, smaller), "limits.max_batch_size", reason)


def _carried(case: Case) -> int:
    """Requests of one pool that all run to their end and leave the field rule's part of the cache free."""
    held = case.wish.isl + case.wish.osl // 2
    roomy = int((1 - overheads().keep_kv_free) * case.capacity.tokens / held)
    return min(case.concurrency.completing, roomy) // case.shape.kv_pools


def _with_source(case: Case, name: str, source: str) -> Case:
    return replace(case, sources={**case.sources, name: source})


def _settle(model: Model, target: Target, wish: Wish, shape: Shape, tokens: int, batch: int) -> Case:
    figures = overheads()
    chunk = wish.prefill_chunk_tokens
    most = batch * wish.max_seq_len_tokens
    if target.engine == "trtllm-engine" and tokens > most:
        # The builder cuts a step to every request at its full length, without a word.
        tokens = most
        chunk = min(chunk or most, most)
    extra = wish.rank0_overhead_mib
    neighbours = min(shape.gpus, target.gpus_per_node) - 1
    ranks = rank_memories(
        model,
        MemoryRequest(
            gpu=target.gpu,
            shape=shape,
            gpus_per_node=target.gpus_per_node,
            max_num_tokens=tokens,
            max_batch_size=batch,
            kv_dtype=wish.kv_dtype,
            block_tokens=wish.block_tokens,
            indexer_dtype=wish.indexer_dtype,
            mtp=wish.mtp,
            cuda_graphs=wish.cuda_graphs,
            rank0_extra_bytes=None if extra is None else extra * neighbours * MIB,
        ),
    )
    fraction = figures.kv_fraction if wish.fraction is None else wish.fraction
    found = _cache(ranks, shape, wish, fraction, batch)
    source = "default"
    while wish.fraction is None and fraction > 0.1 and _left(ranks, found) < 0:
        fraction = round(fraction - 1 / _FRACTION_STEPS, 2)
        found = _cache(ranks, shape, wish, fraction, batch)
        source = "derived: default lowered until CUDA graphs fit beside the cache"
    uncut = min(figures.prefill_chunk_tokens, tokens) if wish.chunked_prefill else tokens
    return Case(
        model=model,
        target=target,
        wish=wish,
        shape=shape,
        max_batch_size=batch,
        max_num_tokens=tokens,
        prefill_chunk_tokens=chunk or uncut,
        fraction=fraction,
        ranks=tuple(rank.with_cache(found.kv_bytes(rank)) for rank in ranks),
        capacity=found,
        sources={"kv_cache.fraction": source},
    )


def _cache(ranks: tuple[RankMemory, ...], shape: Shape, wish: Wish, fraction: float, batch: int) -> Capacity:
    return capacity(
        ranks,
        CapRequest(
            pools=shape.kv_pools,
            block_tokens=wish.block_tokens,
            fraction=fraction,
            max_tokens=wish.max_tokens,
            max_batch_size=batch,
        ),
    )


def _left(ranks: tuple[RankMemory, ...], found: Capacity) -> int:
    return min(rank.with_cache(found.kv_bytes(rank)).left_over_bytes for rank in ranks)
