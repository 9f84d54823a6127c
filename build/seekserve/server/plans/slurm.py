"""The argument list of srun, and what must hold of the Slurm job that it runs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["blockers", "clean_argv", "srun_argv"]


def srun_argv(program: str, *, nodes: int, ranks: int, command: Sequence[str]) -> tuple[str, ...]:
    """`--label` says whose each line is, `--kill-on-bad-exit` ends all ranks with the first that fails."""
    per_node = -(-ranks // nodes)
    return (
        program,
        f"--nodes={nodes}",
        f"--ntasks={ranks}",
        f"--ntasks-per-node={per_node}",
        "--mpi=pmix",
        "--kill-on-bad-exit=1",
        "--cpu-bind=none",
        "--label",
        *command,
    )


def clean_argv(program: str, *, nodes: int, command: Sequence[str]) -> tuple[str, ...]:
    """Once on every node of the job."""
    return (program, f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap", *command)


def blockers(env: Mapping[str, str], *, nodes: int, ranks: int) -> list[str]:
    """`env` is that of the process that would call srun."""
    if "SLURM_JOB_ID" not in env:
        return ["this is no Slurm job (SLURM_JOB_ID is not set); call it from the job's batch script, or after salloc"]
    found = []
    allocated = env.get("SLURM_JOB_NUM_NODES") or env.get("SLURM_NNODES") or "1"
    if allocated.isdecimal() and int(allocated) < nodes:
        found.append(f"the Slurm job has {allocated} nodes, {ranks} ranks need {nodes}")
    if env.get("SLURM_NODEID", "0") != "0":
        found.append(
            f"this is node {env['SLURM_NODEID']} of the Slurm job; rank 0 listens on node 0, so launch it there"
        )
    return found
