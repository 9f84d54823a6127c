"""What one model of a repository needs in ranks: how many, who starts them, on which GPUs, and how long loading takes.

Read from the bundle where there is one, else from the engine's config.json, else from the llmapi model's model.yaml.
Models that need one process and no GPU have no need.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GPUS_PER_NODE", "LEADER", "SPAWNS", "Need", "ranks_text"]

GPUS_PER_NODE = 8
"""Assumed where nothing says it: the node that the public deployment guides describe."""

LEADER = "leader"
"""The C++ backend: every rank is a tritonserver, started together by MPI (or spawned, in orchestrator mode)."""
SPAWNS = "spawns"
"""The LLM API: one tritonserver, whose TensorRT-LLM starts its own workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    model: str
    starter: str
    """LEADER or SPAWNS."""
    tp: int
    pp: int
    source: str
    """The file that says so."""
    gpus_per_node: int = GPUS_PER_NODE
    instances: int = 1
    """Copies of the model in this repository, each with ranks of its own."""
    gpu_ids: tuple[tuple[int, ...], ...] = ()
    """GPUs of each instance; empty: TensorRT-LLM takes the first ones."""
    start_timeout_s: float = 600.0

    @property
    def world_size(self) -> int:
        """Ranks of one instance."""
        return self.tp * self.pp

    @property
    def nodes(self) -> int:
        return -(-self.world_size // self.gpus_per_node)

    @property
    def product(self) -> str:
        return f"tp {self.tp} x pp {self.pp} = {self.world_size}"


def ranks_text(count: int) -> str:
    return f"{count} rank" if count == 1 else f"{count} ranks"
