"""Checks of GPUs, driver, harmful environment variables, MPI and images."""

from __future__ import annotations

from collections.abc import Sequence

from seekserve.server.doctor.finding import Finding, Severity, note, ok, warn
from seekserve.server.doctor.machine import Gpu, Machine
from seekserve.server.doctor.parse import numbers_of

__all__ = ["check_environment", "check_gpus", "check_images", "check_mpi"]

# TensorRT-LLM's deployment guide for DeepSeek asks for this driver.
_LEAST_DRIVER = (575,)
# FP8 arithmetic begins with Ada and Hopper; the published DeepSeek weights are FP8.
_LEAST_FP8_CAPABILITY = (8, 9)

_NO_GPU = "launch, demo and tests run on the embedded CPU engine; building or running a TensorRT-LLM engine needs one"

# variable -> (value that harms, None for any; severity with several GPUs or always; what it breaks; what to do)
_HARMFUL: tuple[tuple[str, str | None, Severity, str, str], ...] = (
    (
        "CUDA_LAUNCH_BLOCKING",
        "1",
        Severity.WARN,
        "every kernel launch waits: most of the throughput is gone",
        "unset it",
    ),
    (
        "NCCL_P2P_DISABLE",
        "1",
        Severity.WARN,
        "GPUs talk through host memory instead of NVLink or PCIe",
        "unset it, unless this board's peer access is known to be broken",
    ),
    ("NCCL_P2P_LEVEL", "LOC", Severity.WARN, "no peer access between GPUs, as NCCL_P2P_DISABLE=1", "unset it"),
    ("NCCL_SHM_DISABLE", "1", Severity.WARN, "GPUs of one node may talk over the network", "unset it"),
    ("NCCL_IB_DISABLE", "1", Severity.WARN, "several nodes talk over TCP instead of RDMA", "unset it on RDMA machines"),
    ("NCCL_NET", "Socket", Severity.WARN, "several nodes talk over TCP instead of RDMA", "unset it on RDMA machines"),
    (
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "1",
        Severity.WARN,
        "every allocation goes to the driver: very slow",
        "unset it",
    ),
    ("TORCH_NCCL_BLOCKING_WAIT", "1", Severity.NOTE, "collectives run synchronously", "for debugging only"),
    ("NCCL_ALGO", None, Severity.NOTE, "overrides NCCL's own tuning", "unset it if it came from another machine"),
    ("NCCL_PROTO", None, Severity.NOTE, "overrides NCCL's own tuning", "unset it if it came from another machine"),
    ("CUDA_MODULE_LOADING", "EAGER", Severity.NOTE, "a longer start and more memory", "unset it"),
    ("NCCL_DEBUG", "TRACE", Severity.NOTE, "heavy logging", "INFO is enough at start"),
)


def check_gpus(machine: Machine) -> Sequence[Finding]:
    if not machine.has_nvidia_smi:
        return [note("GPU", "none: nvidia-smi is not installed", breaks=_NO_GPU)]
    if machine.nvidia_smi_error:
        return [
            warn(
                "GPU",
                f"nvidia-smi fails: {machine.nvidia_smi_error}",
                breaks="everything on a GPU",
                do="reload or reinstall the driver; in a container pass --gpus all",
            )
        ]
    if not machine.gpus:
        return [note("GPU", "nvidia-smi lists none", breaks=_NO_GPU)]
    findings = [ok("GPU", _summary(machine.gpus)), _driver(machine.gpus[0].driver)]
    if any(gpu.is_mig for gpu in machine.gpus):
        findings.append(
            warn(
                "MIG",
                f"enabled on GPU {', '.join(str(gpu.index) for gpu in machine.gpus if gpu.is_mig)}",
                breaks="tensor parallelism: slices cannot reach each other's memory",
                do="use whole GPUs for a model that needs more than one",
            )
        )
    old = [gpu for gpu in machine.gpus if _is_below_fp8(gpu)]
    if old:
        findings.append(
            warn(
                "FP8",
                f"{old[0].name} has compute capability {old[0].compute_capability}, FP8 needs 8.9",
                breaks="DeepSeek's published FP8 weights and FP8 KV blocks on TensorRT-LLM",
                do="convert to BF16, or use an Ada, Hopper or Blackwell GPU",
            )
        )
    if len({gpu.name for gpu in machine.gpus}) > 1 and machine.env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        findings.append(
            note(
                "GPU order",
                "different cards, CUDA_DEVICE_ORDER is not PCI_BUS_ID",
                breaks="device numbers of CUDA and nvidia-smi differ",
                do="export CUDA_DEVICE_ORDER=PCI_BUS_ID",
            )
        )
    return findings


def _summary(gpus: Sequence[Gpu]) -> str:
    counts: dict[str, int] = {}
    for gpu in gpus:
        memory = "" if gpu.memory_mib is None else f" {gpu.memory_mib / 1024:.0f} GiB"
        counts[gpu.name + memory] = counts.get(gpu.name + memory, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _driver(version: str) -> Finding:
    if numbers_of(version)[:1] < _LEAST_DRIVER:
        return warn(
            "driver",
            f"{version}, TensorRT-LLM asks for {_LEAST_DRIVER[0]}",
            breaks="current TensorRT-LLM images",
            do="install a newer driver, or an image of the driver's time",
        )
    return ok("driver", version)


def _is_below_fp8(gpu: Gpu) -> bool:
    return gpu.compute_capability is not None and numbers_of(gpu.compute_capability) < _LEAST_FP8_CAPABILITY


def check_environment(machine: Machine) -> Sequence[Finding]:
    findings = []
    for name, value, severity, breaks, todo in _HARMFUL:
        actual = machine.env.get(name)
        if actual is None or (value is not None and actual.upper() != value.upper()):
            continue
        found = f"{name}={actual}"
        findings.append(Finding(check="environment", severity=severity, found=found, breaks=breaks, do=todo))
    return findings or [ok("environment", "no variable that is known to harm")]


def check_mpi(machine: Machine) -> Finding:
    if machine.mpirun is not None:
        return ok("MPI", machine.mpirun)
    found = "mpirun is not installed"
    if len(machine.gpus) > 1:
        return warn(
            "MPI", found, breaks="TensorRT-LLM engines on several GPUs", do="use a TensorRT-LLM image, it has MPI"
        )
    return note("MPI", found, breaks="only engines on several GPUs need it")


def check_images(machine: Machine) -> Finding:
    if machine.images is None:
        return note("images", "no container engine here", breaks="only launching in a container needs one")
    if not machine.images:
        return note(
            "images",
            "no Triton or TensorRT-LLM image is stored here",
            breaks="the first start in a container downloads one (tens of GiB)",
        )
    return ok("images", ", ".join(machine.images))
