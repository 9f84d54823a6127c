"""What this machine says of itself to a report: programs and files that are read, and why one could not be. Changes
nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from seekserve.output import json_text

from .archive import Part

__all__ = ["COMMANDS", "command_part", "kernel_part", "tail_part", "versions_part"]

TAIL_BYTES = 512 * 1024
_TIMEOUT_S = 20.0
_DISTRIBUTIONS = (
    "seekserve",
    "tensorrt-llm",
    "nvidia-pytriton",
    "tritonclient",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "grpcio",
    "protobuf",
    "nvidia-nccl-cu12",
    "mpi4py",
)

COMMANDS: Mapping[str, Sequence[str]] = {
    "machine/gpu-topology.txt": ("nvidia-smi", "topo", "-m"),
    "machine/gpu-peer-access.txt": ("nvidia-smi", "topo", "-p2p", "r"),
    "machine/gpus.txt": ("nvidia-smi", "-q"),
    "machine/gpu-processes.txt": (
        "nvidia-smi",
        "--query-accounted-apps=gpu_name,pid,time,gpu_utilization,mem_utilization,max_memory_usage",
        "--format=csv",
    ),
    "machine/numa.txt": ("numactl", "--hardware"),
    "machine/cpus.txt": ("lscpu",),
    "machine/memory.txt": ("free", "-m"),
    "machine/disks.txt": ("df", "-h"),
    "machine/network.txt": ("ip", "-brief", "address"),
    "machine/infiniband.txt": ("ibstat",),
}
"""Topology, accounting and what else tells machines apart."""

# What GPU drivers, the PCI bus and the memory killer say in the kernel's log.
_OF_INTEREST = re.compile(
    r"NVRM|\bXid\b|nvidia|nvlink|nvswitch|GPU has fallen|\bAER\b|pcieport|out of memory|oom-kill|Killed process"
    r"|\bMCE\b|EDAC|segfault|mlx[45]|infiniband|thermal|throttl",
    re.IGNORECASE,
)
_MOST_KERNEL_LINES = 2000

Run = Callable[[Sequence[str]], "tuple[int, str, str] | None"]


def run_program(argv: Sequence[str], env: Mapping[str, str] | None = None) -> tuple[int, str, str] | None:
    """(status, stdout, stderr); None when it is not installed."""
    path = shutil.which(argv[0], path=(os.environ if env is None else env).get("PATH", os.defpath))
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *argv[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer within {_TIMEOUT_S:g} s"
    except OSError as error:
        return 1, "", str(error)
    return done.returncode, done.stdout, done.stderr


def command_part(name: str, argv: Sequence[str], run: Run = run_program) -> Part:
    result = run(argv)
    if result is None:
        return Part(name=name, note=f"{argv[0]} is not installed")
    status, out, err = result
    if status != 0:
        said = (err or out).strip().splitlines()
        return Part(name=name, note=f"{' '.join(argv)} ended with {status}{': ' + said[0] if said else ''}")
    return Part(name=name, text=out)


def kernel_part(run: Run = run_program) -> Part:
    """Lines about GPUs, buses and memory from the kernel's log, where this user may read it."""
    name, tried = "machine/kernel.txt", []
    for argv in (("dmesg", "--time-format", "iso"), ("dmesg",), ("journalctl", "--dmesg", "--no-pager", "--quiet")):
        part = command_part(name, argv, run)
        if part.text is None:
            tried.append(part.note)
            continue
        lines = [line for line in part.text.splitlines() if _OF_INTEREST.search(line)]
        kept = lines[-_MOST_KERNEL_LINES:]
        text = "".join(line + "\n" for line in kept) or "(the kernel's log has no line about GPUs, buses or memory)\n"
        cut = f"the last {len(kept)} of {len(lines)} lines about GPUs, buses and memory" if lines else ""
        return Part(name=name, text=text, note=cut)
    return Part(name=name, note="; ".join(dict.fromkeys(tried)))


def tail_part(name: str, path: Path, *, most_bytes: int = TAIL_BYTES) -> Part:
    """The end of a file, from a whole line on."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most_bytes))
            data = file.read()
    except OSError as error:
        return Part(name=name, note=f"{path}: {error.strerror or error}")
    text = data.decode("utf-8", "replace")
    if size > most_bytes:
        text = text.partition("\n")[2]
        return Part(name=name, text=text, note=f"the last {len(data)} of {size} bytes")
    return Part(name=name, text=text)


def versions_part(server: Mapping[str, object], distributions: Iterable[str] = _DISTRIBUTIONS) -> Part:
    """`server`: what is known of the tritonserver that is found here."""
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    body = {
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "driver": _first_line(Path("/proc/driver/nvidia/version")),
        "packages": found,
        "tritonserver": dict(server),
    }
    return Part(name="versions.json", text=json_text({key: value for key, value in body.items() if value}) + "\n")


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").splitlines()[0]
    except (OSError, IndexError):
        return None
