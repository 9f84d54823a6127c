"""The memory of every kind of rank: weights, workspace, overheads, cache, CUDA graphs, what is left.

TP ranks of a stage are alike; the first rank of the first host differs when it carries its neighbours' contexts. The
cache gets a fraction of what is free after loading and one full step, as the engine gives it; graphs come out of the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from seekserve.checkpoint import kv_cost

from .gpus import Gpu
from .model import Model
from .overheads import MIB, graph_batch_sizes, overheads
from .shape import Shape, stage_layers
from .sharding import Splitter, StageWeights, kv_heads_on_rank, stage_weights
from .workspace import Buffer, activation_buffers

__all__ = ["MemoryRequest", "RankMemory", "rank_memories", "tightest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What decides the memory of the ranks, apart from the model."""

    gpu: Gpu
    shape: Shape
    gpus_per_node: int
    max_num_tokens: int
    max_batch_size: int
    kv_dtype: str
    block_tokens: int
    indexer_dtype: str = "fp8"
    mtp: int = 0
    """Draft tokens; the MTP layers that run are at most those of the checkpoint."""
    cuda_graphs: bool = True
    rank0_extra_bytes: int | None = None
    """None: for each other rank on the host, as reported; otherwise the whole extra."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    label: str
    ranks: int
    """GPUs that look like this."""
    stage: int
    total_bytes: int
    weights: Mapping[str, int]
    absorbed_bytes: int
    activations: tuple[Buffer, ...]
    framework_bytes: int
    communication_bytes: int
    rank0_extra_bytes: int
    graphs_bytes: int
    kv_bytes_per_token: int
    """Of the layers on this rank."""
    kv_bytes_per_request: int
    """Fixed cost of a request, V4's windows and compressor state."""
    kv_bytes: int = 0
    """Given to the cache, once the capacity is known."""

    @property
    def weights_bytes(self) -> int:
        return sum(self.weights.values())

    @property
    def activations_bytes(self) -> int:
        return sum(buffer.size_bytes for buffer in self.activations)

    @property
    def before_cache_bytes(self) -> int:
        """In use when the engine measures what is free."""
        return (
            self.weights_bytes
            + self.absorbed_bytes
            + self.activations_bytes
            + self.framework_bytes
            + self.communication_bytes
            + self.rank0_extra_bytes
        )

    @property
    def free_bytes(self) -> int:
        """What the fraction is taken of; negative when the rank does not even load."""
        return self.total_bytes - self.before_cache_bytes

    @property
    def left_over_bytes(self) -> int:
        return self.free_bytes - self.kv_bytes - self.graphs_bytes

    def with_cache(self, kv_bytes: int) -> RankMemory:
        return replace(self, kv_bytes=kv_bytes)

    def rows(self) -> list[tuple[str, int]]:
        """For tables and JSON, in the order in which memory is taken."""
        return [
            ("weights", self.weights_bytes),
            ("absorbed_weights", self.absorbed_bytes),
            ("activations", self.activations_bytes),
            ("framework", self.framework_bytes),
            ("communication", self.communication_bytes),
            ("rank0_extra", self.rank0_extra_bytes),
            ("kv_cache", self.kv_bytes),
            ("cuda_graphs", self.graphs_bytes),
            ("left_over", self.left_over_bytes),
        ]


def rank_memories(model: Model, request: MemoryRequest) -> tuple[RankMemory, ...]:
    """One entry for each kind of rank, the first rank first; without a cache yet."""
    shape = request.shape
    splitter = Splitter(
        config=model.config,
        shape=shape,
        gpus_per_node=request.gpus_per_node,
        is_fp8_block="fp8_block" in model.precision,
    )
    layers = min(request.mtp, model.mtp_layers)
    stages = stage_weights(model.groups, model.config, model.architecture, splitter, mtp_layers=layers)
    buffers = activation_buffers(
        model.config,
        model.architecture,
        model.precision,
        shape,
        max_num_tokens=request.max_num_tokens,
        max_batch_size=request.max_batch_size,
        gpus_per_node=request.gpus_per_node,
    )
    kinds: list[RankMemory] = []
    extra = _rank0_extra(request)
    for number, weights in enumerate(stages):
        plain = _rank(model, request, number, weights, buffers, layers if number == len(stages) - 1 else 0)
        others = shape.tp
        if number == 0 and extra:
            kinds.append(replace(plain, label="rank 0", ranks=1, rank0_extra_bytes=extra))
            others -= 1
        if others:
            kinds.append(replace(plain, label=_label(number, shape, is_rest=others < shape.tp), ranks=others))
    return tuple(kinds)


def _rank(
    model: Model,
    request: MemoryRequest,
    stage: int,
    weights: StageWeights,
    buffers: tuple[Buffer, ...],
    mtp_layers: int,
) -> RankMemory:
    figures, shape = overheads(), request.shape
    per_token, per_request = _kv(model, request, stage, mtp_layers)
    sizes = graph_batch_sizes(request.max_batch_size, figures.cuda_graph_max_batch) if request.cuda_graphs else ()
    return RankMemory(
        label="",
        ranks=1,
        stage=stage,
        total_bytes=request.gpu.memory_bytes,
        weights=weights.by_part,
        absorbed_bytes=weights.absorbed_bytes,
        activations=buffers,
        framework_bytes=figures.framework_mib * MIB,
        communication_bytes=figures.nccl_bytes(shape.gpus),
        rank0_extra_bytes=0,
        graphs_bytes=len(sizes) * figures.cuda_graph_mib * MIB,
        kv_bytes_per_token=per_token,
        kv_bytes_per_request=per_request,
    )


def _kv(model: Model, request: MemoryRequest, stage: int, mtp_layers: int) -> tuple[int, int]:
    config, shape = model.config, request.shape
    cost = kv_cost(
        config,
        model.architecture,
        request.kv_dtype,
        indexer_dtype=request.indexer_dtype,
        layers=stage_layers(config.num_hidden_layers, shape.pp)[stage],
        mtp_layers=mtp_layers,
    )
    if not cost.is_divided_by_tp:
        return cost.per_token_bytes, cost.per_request_bytes
    return cost.per_token_bytes * kv_heads_on_rank(config, shape) // config.num_key_value_heads, cost.per_request_bytes


def _rank0_extra(request: MemoryRequest) -> int:
    if request.rank0_extra_bytes is not None:
        return request.rank0_extra_bytes
    neighbours = min(request.shape.gpus, request.gpus_per_node) - 1
    return neighbours * overheads().rank0_extra_mib_per_rank * MIB


def _label(stage: int, shape: Shape, *, is_rest: bool) -> str:
    """Ranks are numbered stage by stage."""
    first, last = stage * shape.tp + (1 if is_rest else 0), (stage + 1) * shape.tp - 1
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


def tightest(ranks: Sequence[RankMemory]) -> RankMemory:
    return min(ranks, key=lambda rank: rank.free_bytes)
