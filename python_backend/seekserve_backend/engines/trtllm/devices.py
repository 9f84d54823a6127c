"""Which GPUs this instance may use, settled before CUDA starts; and what this process is in a group of MPI ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

from ...contract.bundle import Parallel
from ..port import EngineError

__all__ = ["check_leads", "mpi_rank", "select_gpus"]

_GROUPS = re.compile(r"\d+(,\d+)*(;\d+(,\d+)*)*")
_RANK_VARIABLES = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def select_gpus(
    gpu_device_ids: str, instance_name: str, parallel: Parallel, environment: MutableMapping[str, str]
) -> str:
    """Sets CUDA_VISIBLE_DEVICES for this instance of `0,1;2,3` (one group for each) and returns its group.

    Triton names the n-th instance of a group `<model>_<group>_<n>`. Raises EngineError for a list that does not fit.
    """
    text = gpu_device_ids.replace(" ", "")
    if not _GROUPS.fullmatch(text):
        raise EngineError(f'gpu_device_ids is {gpu_device_ids!r}; write device numbers as "0,1;2,3", one group each')
    groups = text.split(";")
    all_ids = text.replace(";", ",").split(",")
    if len(set(all_ids)) != len(all_ids):
        raise EngineError(f"gpu_device_ids {gpu_device_ids!r} names a GPU twice; each instance needs its own")
    number = instance_name.rpartition("_")[2]
    index = int(number) if number.isdecimal() else 0
    if index >= len(groups):
        raise EngineError(
            f"instance {instance_name} is number {index + 1} and gpu_device_ids {gpu_device_ids!r} has {len(groups)} "
            "groups; render the repository again with as many groups as instances"
        )
    wanted = min(parallel.world_size, parallel.gpus_per_node)
    got = groups[index].split(",")
    if len(got) != wanted:
        raise EngineError(
            f"gpu_device_ids gives instance {instance_name} {len(got)} GPUs ({groups[index]}), the bundle needs "
            f"{wanted} on a node (TP {parallel.tp} x PP {parallel.pp})"
        )
    # Somebody gave this server some GPUs of the node; the others are not ours to take.
    given = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    outside = [number for number in got if number not in given]
    if all(number.isdecimal() for number in given) and outside:
        raise EngineError(
            f"gpu_device_ids gives instance {instance_name} the GPU {outside[0]}, and CUDA_VISIBLE_DEVICES allows "
            f"{','.join(given)}; render again with --gpus of those, they are numbers of the node"
        )
    environment["CUDA_VISIBLE_DEVICES"] = groups[index]
    return groups[index]


def mpi_rank(environment: Mapping[str, str]) -> int:
    """This process's rank in a job of several that was started with mpirun or srun; 0 otherwise.

    Under trtllm-llmapi-launch the server is no rank at all: its ranks are reached through a proxy.
    """
    if environment.get("TLLM_SPAWN_PROXY_PROCESS"):
        return 0
    for rank, size in _RANK_VARIABLES:
        if environment.get(size, "1") != "1":
            return int(environment.get(rank, "0"))
    return 0


def check_leads(environment: Mapping[str, str]) -> None:
    """Raises EngineError on an MPI rank other than 0: TensorRT-LLM is led from rank 0 and starts its workers itself."""
    rank = mpi_rank(environment)
    if rank != 0:
        raise EngineError(
            f"this server is rank {rank} of an MPI job, and an engine lives on rank 0 alone; start one server with "
            "`seekserve launch`, which brings up the other ranks as TensorRT-LLM wants them"
        )
