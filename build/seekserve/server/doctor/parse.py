"""Pure readers of what other programs print."""

from __future__ import annotations

import re

from seekserve.server.doctor.machine import Gpu

__all__ = ["GPU_QUERY", "numbers_of", "parse_images", "parse_mpirun", "parse_nvidia_smi"]

GPU_QUERY = ("index", "name", "driver_version", "memory.total", "mig.mode.current", "compute_cap")
"""Columns asked of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`, in this order."""

_IMAGE = re.compile(r"(tritonserver|tensorrt-llm|tensorrtllm)")


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """ValueError for a line that is not of the form asked for."""
    gpus = []
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(GPU_QUERY) or not cells[0].isdecimal():
            raise ValueError(f"nvidia-smi printed {line.strip()!r}, expected {len(GPU_QUERY)} columns")
        index, name, driver, memory, mig, capability = cells
        gpus.append(
            Gpu(
                index=int(index),
                name=name,
                driver=driver,
                memory_mib=int(memory) if memory.isdecimal() else None,
                is_mig=mig == "Enabled",
                compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
            )
        )
    return tuple(gpus)


def parse_mpirun(text: str) -> str | None:
    return next((line.strip() for line in text.splitlines() if line.strip()), None)


def parse_images(text: str) -> tuple[str, ...]:
    """From `docker images --format {{.Repository}}:{{.Tag}}`: those that hold a Triton or TensorRT-LLM."""
    return tuple(sorted(line.strip() for line in text.splitlines() if _IMAGE.search(line)))


def numbers_of(version: str) -> tuple[int, ...]:
    """`2.51.0` -> (2, 51, 0); what is not a number ends it, and nothing at all gives ()."""
    found = []
    for part in version.split("."):
        match = re.match(r"\d+", part)
        if match is None:
            break
        found.append(int(match.group()))
        if match.group() != part:
            break
    return tuple(found)
