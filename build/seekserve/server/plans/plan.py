"""A launch plan as data: everything that would run, where, and why. Printing and running read the same object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seekserve.server.plans.hosts import Host

__all__ = ["KINDS", "LaunchPlan", "Rank"]

KINDS = ("single", "orchestrator", "leader", "llmapi")
"""
single        one tritonserver; an engine on several GPUs of this node spawns its own workers
orchestrator  the same, and the C++ backend spawns its workers by MPI
leader        one tritonserver for each rank, of which rank 0 listens
llmapi        one tritonserver beside rank 0 of trtllm-llmapi-launch, which carries the workers of all nodes
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One tritonserver of the plan."""

    number: int
    host: str
    listens: bool
    models: tuple[str, ...]
    shm_prefix: str
    argv: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    kind: str
    """One of KINDS."""
    launcher: str | None
    """`mpirun`, `srun`, or None: tritonserver itself is started."""
    world_size: int
    product: str
    """Where the number comes from, in words."""
    hosts: tuple[Host, ...]
    """Empty for one process."""
    argv: tuple[str, ...] = field(repr=False)
    """What is started, from which everything else follows."""
    servers: tuple[Rank, ...]
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Scripts of the run folder: name -> text."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Set on top of the environment, everywhere."""
    clean_argv: tuple[str, ...] = ()
    """Removes the launch's shared memory on every node, once no rank runs; empty where this machine is all there is."""
    why: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    """What keeps this machine from running it now; the plan itself is sound."""

    @property
    def is_group(self) -> bool:
        """Whether a launcher leads it, whose ranks live and die together."""
        return self.launcher is not None

    @property
    def summary(self) -> str:
        if not self.is_group:
            return self.kind if self.world_size == 1 else f"{self.kind}, {self.product}"
        where = ", ".join(map(str, self.hosts))
        return f"{self.kind} by {self.launcher}, {self.product}" + (f", on {where}" if where else "")
