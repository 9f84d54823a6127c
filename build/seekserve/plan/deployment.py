"""The GPU half of a Plan: machines, shape, memory of every rank, capacity, and all that was found while planning.

Frozen and complete: `build-engine`, the renderer and the backend read it, so nothing is computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from .capacity import Capacity, Concurrency
from .case import Case, Target
from .finding import Finding
from .gpus import Gpu
from .memory import RankMemory
from .overheads import graph_batch_sizes, overheads
from .search import Suggestion
from .shape import Shape

__all__ = ["Deployment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One replica and the machines of all of them."""

    case: Case
    """The model, its limits and its memory in the chosen shape."""
    fits: bool
    """No error finding: this can be built."""
    capacity_policy: str
    host_cache_bytes: int
    use_uvm: bool
    block_reuse: bool
    preset: str | None
    findings: tuple[Finding, ...]
    alternatives: tuple[Suggestion, ...]
    """Best first; empty when every size was given or nothing fits."""

    @property
    def target(self) -> Target:
        return self.case.target

    @property
    def gpu(self) -> Gpu:
        return self.case.target.gpu

    @property
    def shape(self) -> Shape:
        return self.case.shape

    @property
    def ranks(self) -> tuple[RankMemory, ...]:
        return self.case.ranks

    @property
    def capacity(self) -> Capacity:
        return self.case.capacity

    @property
    def concurrency(self) -> Concurrency:
        return self.case.concurrency

    @property
    def cuda_graph_batch_sizes(self) -> tuple[int, ...]:
        if not self.case.wish.cuda_graphs:
            return ()
        return graph_batch_sizes(self.case.max_batch_size, overheads().cuda_graph_max_batch)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.is_error)
