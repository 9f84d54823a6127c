"""What a build needs before it starts: disk, host memory, a GPU of the target's kind, time; too little disk ends it.

Sizes are computed from the plan. Times are those that somebody published, scaled by bytes, and said to be rough.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from seekserve.errors import ConflictError, DoesNotFit
from seekserve.output import bytes_text
from seekserve.plan.gpus import gpu_of_device_name

from .host import Host
from .job import Job
from .recipe import CALIBRATION_SET, Recipe

__all__ = ["check_disk", "check_gpu", "check_memory", "disk_bytes", "needs_of"]

_RESERVE: Final = 1.05
_V2_BYTES: Final = 472e9
_V2_MINUTES: Final = 34
_V2_HOST_BYTES: Final = 770e9
"""README of examples/models/contrib/deepseek_v2: 236B parameters in bf16 to 8 ranks on GPUs; on the CPU in 770 GB."""


def disk_bytes(job: Job) -> int:
    """Converted checkpoint and engine, both of all ranks; they stand side by side until the bundle is whole."""
    return int(2 * job.engine_bytes * _RESERVE)


def needs_of(job: Job, recipe: Recipe) -> tuple[str, ...]:
    gpu, each, stored = job.deployment.gpu, job.engine_bytes, job.source.facts.weights_bytes
    workers = min(job.wish.trtllm.workers or job.parallel.gpus_per_node, job.world_size)
    reading, building = _host_bytes(job), 2 * each * workers // job.world_size
    needs = [
        f"disk: {bytes_text(disk_bytes(job))} (converted checkpoint and engine, {bytes_text(each)} each)",
        f"host memory: about {bytes_text(reading)} to read the weights, then {bytes_text(building)} to build",
        f"GPU: {workers} x {gpu.name} (SM{gpu.sm}) here; an engine runs on the architecture it was built on only",
        f"time: roughly {_minutes(stored)} to convert (by the README of deepseek_v2), for the build nobody says",
    ]
    if recipe.calibrates:
        # quantize.py loads with trust_remote_code, whatever it is told.
        needs += [
            f"calibration: {bytes_text(stored)} of weights on the GPUs here, 512 samples{_where_from(recipe)}",
            "trust: quantize.py runs the Python code that the checkpoint brings, if any",
        ]
    return tuple(needs)


def check_disk(job: Job, host: Host, folder: Path, done_bytes: int) -> None:
    """Raises DoesNotFit with both numbers. `done_bytes` lie there already, from a build that was interrupted."""
    free, needed = host.free_bytes(folder), disk_bytes(job) - done_bytes
    if free < needed:
        raise DoesNotFit(
            f"the build needs {bytes_text(needed)} of disk for the converted checkpoint and the engine, the disk of "
            f"{folder} has {bytes_text(free)} free",
            hint="free some space, or choose another --out",
        )


def check_gpu(job: Job, host: Host) -> list[str]:
    """A warning where nothing can be learnt; ConflictError when a GPU of another architecture would build."""
    names = host.devices()
    gpu = job.deployment.gpu
    if not names:
        return [f"no GPU was found here; trtllm-build needs a {gpu.name} (SM{gpu.sm}) and fails without one"]
    found = [(name, gpu_of_device_name(name)) for name in names]
    other = next(((name, known) for name, known in found if known is not None and known.sm != gpu.sm), None)
    if other is not None:
        name, known = other
        assert known is not None
        raise ConflictError(
            f"this machine has {name} (SM{known.sm}), the plan is for {gpu.name} (SM{gpu.sm}): an engine runs on the "
            "architecture that it was built on only",
            hint=f"--gpu {known.name}, or build where the {gpu.name} is",
        )
    unknown = [name for name, known in found if known is None]
    return [f"cannot tell whether {unknown[0]} is SM{gpu.sm} as {gpu.name} is"] if unknown else []


def check_memory(job: Job, host: Host) -> list[str]:
    """A warning only: the figure is one that was published for one model, scaled."""
    have, need = host.memory_bytes(), _host_bytes(job)
    if have >= need:
        return []
    return [f"this machine has {bytes_text(have)} of memory, reading the weights takes about {bytes_text(need)}"]


def _host_bytes(job: Job) -> int:
    return int(job.source.facts.weights_bytes * _V2_HOST_BYTES / _V2_BYTES)


def _minutes(size_bytes: int) -> str:
    minutes = max(round(size_bytes / _V2_BYTES * _V2_MINUTES), 1)
    return f"{minutes} minute{'s' if minutes > 1 else ''}"


def _where_from(recipe: Recipe) -> str:
    if recipe.dataset.startswith("/"):
        return f" of {recipe.dataset}"
    return f" of {recipe.dataset} from the hub (offline: --calibration-data FOLDER, {CALIBRATION_SET} in its name)"
