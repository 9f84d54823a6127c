"""What the user asked for, and the facts of this machine that a plan depends on; both plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seekserve.server.plans.hosts import Host

__all__ = ["MachineFacts", "PlanWish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWish:
    ranks: str = "auto"
    """As in LaunchOptions."""
    launcher: str = "mpirun"
    hosts: tuple[Host, ...] = ()
    """Empty: this machine, or what Slurm has allocated."""
    world_size: int | None = None
    """What the user believes; must agree with the engines."""
    mpi_interface: str | None = None
    """Network interface for MPI's own TCP traffic."""
    shared_dir: Path | None = None
    """A folder that every node sees under this path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    is_root: bool = False
    programs: Mapping[str, str] = field(default_factory=dict)
    """Name -> path of mpirun, srun and trtllm-llmapi-launch, of those that are installed."""
    own_hosts: frozenset[str] = frozenset()
    """Those of the wished hosts that are this machine."""
    env: Mapping[str, str] = field(default_factory=dict)
