"""The figures of facts/memory.yaml as one frozen object: overheads of a rank, defaults of the limits, field rules."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .gpus import FACTS_FOLDER
from .yaml_file import read_yaml

__all__ = ["MIB", "Overheads", "graph_batch_sizes", "overheads"]

MIB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    framework_mib: int
    nccl_mib: Mapping[int, int]
    cuda_graph_mib: int
    cuda_graph_max_batch: int
    rank0_extra_mib_per_rank: int
    kv_fraction: float
    max_num_tokens: int
    max_num_tokens_attention_dp: int
    max_batch_size: int
    prefill_chunk_tokens: int
    max_seq_len_tokens: int
    isl_tokens: int
    osl_tokens: int
    warn_kv_share_of_gpu: float
    keep_kv_free: float
    aiconfigurator: Mapping[str, Any]

    def nccl_bytes(self, ranks: int) -> int:
        return MIB * self.nccl_mib[max(key for key in self.nccl_mib if key <= ranks)]


@functools.cache
def overheads() -> Overheads:
    return Overheads(**read_yaml(FACTS_FOLDER / "memory.yaml", setting="memory figures"))


def graph_batch_sizes(max_batch_size: int, limit: int) -> tuple[int, ...]:
    """Batch sizes that TensorRT-LLM captures with padding on: 1, 2, 4, then every 8, and the largest itself."""
    largest = min(max_batch_size, limit)
    sizes = {size for size in (1, 2, 4, *range(8, largest + 1, 8)) if size <= largest}
    return tuple(sorted(sizes | {largest}))
