"""Argument lists of Open MPI's mpirun, in the options that 4.1 and 5 share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from seekserve.server.plans.hosts import Host

__all__ = ["exported", "head", "joined", "own_paths", "segment"]

# What steers the ranks of other nodes when it is set here.
_FORWARDED = ("CUDA_", "FI_", "NCCL_", "PYTORCH_", "TLLM_", "TORCH_", "TRTLLM_", "UCX_")
_PATHS = ("LD_LIBRARY_PATH", "PATH")


def head(program: str, *, is_root: bool) -> tuple[str, ...]:
    """`--tag-output` says whose each line is; without `--bind-to none` every thread of a rank shares one core."""
    return (program, *(["--allow-run-as-root"] if is_root else []), "--tag-output", "--bind-to", "none")


def segment(
    hosts: Sequence[Host], ranks: int, exported_names: Iterable[str], command: Sequence[str]
) -> tuple[str, ...]:
    """One program of the job. Hosts and exports hold for their own segment only, so each has them."""
    names = [word for name in exported_names for word in ("-x", name)]
    return ("-n", str(ranks), "-H", ",".join(map(str, hosts)), *names, *command)


def own_paths(changes: Mapping[str, str], env: Mapping[str, str]) -> tuple[str, ...]:
    """mpirun puts its own folders first in both; a rank's Python, and that of its workers, is what PATH finds first."""
    present = {**env, **changes}
    return ("/usr/bin/env", *(f"{name}={present[name]}" for name in sorted(_PATHS) if name in present))


def joined(segments: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Several programs, one MPI world."""
    words = list(segments[0])
    for each in segments[1:]:
        words += [":", *each]
    return tuple(words)


def exported(changes: Mapping[str, str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Names for `-x`: values stay in the environment, where no other user reads them. Paths come by `own_paths`."""
    forwarded = {name for name in env if name.startswith(_FORWARDED)}
    return tuple(sorted({*changes, *forwarded} - set(_PATHS)))
