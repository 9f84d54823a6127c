"""The GPU catalogue: facts/gpus.yaml as frozen objects, and finding the one that a person means.

Names are forgiving in spelling only (h200_sxm, H200-SXM, h200): what matches nothing, or several entries, is an error
that lists the nearest. Decides nothing about fitting.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from seekserve.errors import ConfigError

from .yaml_file import read_yaml

__all__ = ["FACTS_FOLDER", "GIB", "Gpu", "catalogue", "find_gpu", "gpu_of_device_name"]

GIB: Final = 1024**3
FACTS_FOLDER: Final = Path(__file__).parent / "facts"
_NODE_GPUS: Final = 8
_ARCHITECTURES: Final = {80: "Ampere", 86: "Ampere", 89: "Ada", 90: "Hopper", 100: "Blackwell", 103: "Blackwell Ultra"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    name: str
    memory_bytes: int
    """As the driver reports it."""
    bandwidth_bytes_per_s: float
    tflops: Mapping[str, float]
    sm: int
    nvlink_gbps: float
    nvlink_scope: str
    node_gpus: int
    """GPUs of one host as usually sold."""
    domain_gpus: int
    """GPUs that one NVLink switch joins; 1 without a switch."""
    device_names: tuple[str, ...]
    source: str
    confidence: str
    note: str

    @property
    def architecture(self) -> str:
        return _ARCHITECTURES.get(self.sm, "consumer Blackwell" if self.sm >= 120 else f"SM{self.sm}")

    @property
    def memory_text(self) -> str:
        return f"{self.memory_bytes / GIB:.1f} GiB"


@functools.cache
def catalogue() -> Mapping[str, Gpu]:
    """By name, in the order of the file."""
    return MappingProxyType({name: _gpu(name, entry) for name, entry in _entries().items()})


def find_gpu(wanted: str, source: str = "--gpu") -> Gpu:
    """Raises ConfigError naming the nearest entries."""
    gpus, key = catalogue(), _key(wanted)
    by_alias = {_key(alias): name for name, entry in _entries().items() for alias in (name, *entry.get("aliases", ()))}
    if key in by_alias:
        return gpus[by_alias[key]]
    starting = [name for name in gpus if name.startswith(key)] if key else []
    if len(starting) == 1:
        return gpus[starting[0]]
    if starting:
        raise ConfigError(f"{source}: {wanted!r} can mean {', '.join(starting)}", hint="name one of them")
    device = gpu_of_device_name(wanted)
    if device is not None:
        return device
    near = difflib.get_close_matches(key, list(by_alias), 3, cutoff=0.4)
    names = list(dict.fromkeys(by_alias[alias] for alias in near)) or list(gpus)
    raise ConfigError(f"{source}: no GPU {wanted!r} in the catalogue", hint=f"nearest: {', '.join(names)}")


def gpu_of_device_name(name: str) -> Gpu | None:
    """By the name that the driver prints, e.g. `NVIDIA H200`."""
    wanted = name.strip().lower()
    return next((gpu for gpu in catalogue().values() if wanted in {n.lower() for n in gpu.device_names}), None)


@functools.cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    data = read_yaml(FACTS_FOLDER / "gpus.yaml", setting="GPU catalogue")
    entries: Mapping[str, Mapping[str, Any]] = data["gpus"]
    return entries


def _key(text: str) -> str:
    return text.strip().lower().replace("_", "-").replace(" ", "-")


def _gpu(name: str, entry: Mapping[str, Any]) -> Gpu:
    node_gpus = int(entry.get("node_gpus", _NODE_GPUS))
    has_switch = entry["nvlink_scope"] == "switch"
    return Gpu(
        name=name,
        memory_bytes=int(entry["memory_gib"] * GIB),
        bandwidth_bytes_per_s=entry["bandwidth_gbps"] * 1e9,
        tflops=dict(entry["tflops"]),
        sm=entry["sm"],
        nvlink_gbps=entry["nvlink_gbps"],
        nvlink_scope=entry["nvlink_scope"],
        node_gpus=node_gpus,
        domain_gpus=int(entry.get("domain_gpus", node_gpus)) if has_switch else 1,
        device_names=tuple(entry["nvidia_smi_name"]),
        source=entry["source"],
        confidence=entry["confidence"],
        note=entry.get("note", ""),
    )
