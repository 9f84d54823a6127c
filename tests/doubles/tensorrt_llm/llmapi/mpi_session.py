"""Handle on the ranks of an MPI world, as far as a constructor checks it."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["MpiCommSession"]


class MpiCommSession:
    """Only rank 0 may make one, and the world must be as large as the model's."""

    def __init__(self, comm: Any = None, n_workers: int = 1) -> None:
        del comm
        rank, world = world_of_mpi()
        if rank != 0:
            raise RuntimeError(f"only rank 0 can make an MpiCommSession, this is rank {rank}")
        if world != n_workers:
            raise ValueError(f"n_workers {n_workers} is not the size of the MPI world, {world}")
        self.n_workers = n_workers

    def shutdown(self, wait: bool = True) -> None:
        """An external session is its maker's to end; nothing to do in the double."""


def world_of_mpi() -> tuple[int, int]:
    """Rank and size by Open MPI's variables; 0 of 1 outside MPI."""
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")), int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
