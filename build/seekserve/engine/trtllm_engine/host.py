"""What a build learns of the machine it runs on, as functions, so that it can be told instead of asked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seekserve.plan.probe import probe_machine

from .tools import Package, ask_interpreter

__all__ = ["Host"]


def _device_names() -> Sequence[str] | None:
    found = probe_machine()
    return None if found is None else [name for name, _ in found.devices]


def _free_bytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _memory_bytes() -> int:
    import psutil

    return psutil.virtual_memory().total


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """What the children get."""
    package: Callable[[str, Mapping[str, str]], Package | None] = ask_interpreter
    """(interpreter, environment) -> the tensorrt_llm that it would import."""
    devices: Callable[[], Sequence[str] | None] = _device_names
    """Names of the GPUs as the driver prints them; None when none was found."""
    free_bytes: Callable[[Path], int] = _free_bytes
    """Of the disk that a folder is, or would be, on."""
    memory_bytes: Callable[[], int] = _memory_bytes
    """Of the host."""
