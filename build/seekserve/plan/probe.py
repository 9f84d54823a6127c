"""Asks the driver which GPUs are here and how they are joined: NVML when its Python module is there, else nvidia-smi.

The one place of the planner that touches hardware. Whatever fails means "no GPU found this way", never a traceback.
"""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seekserve.errors import ConfigError

from .topology import Topology, parse_topology

__all__ = ["Probe", "probe_machine", "probe_nvml", "probe_smi"]

_TIMEOUT_S: Final = 30
_ANCESTORS: Final = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's levels of the nearest common ancestor; 0 is two GPUs on one board."""
_MAX_NVLINKS: Final = 18

Run = Callable[[Sequence[str]], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    devices: tuple[tuple[str, int], ...]
    """(name as the driver prints it, memory in bytes), in PCI order."""
    topology: Topology | None
    through: str


def probe_machine() -> Probe | None:
    return probe_nvml() or probe_smi()


def probe_nvml(load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> Probe | None:
    try:
        nvml = load()
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        devices = tuple((_text(nvml.nvmlDeviceGetName(h)), int(nvml.nvmlDeviceGetMemoryInfo(h).total)) for h in handles)
        return Probe(devices=devices, topology=_nvml_topology(nvml, handles), through="NVML") if devices else None
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _nvml_topology(nvml: Any, handles: Sequence[Any]) -> Topology | None:
    """NVLinks of a pair: those that end at the other GPU, or all when both end at a switch."""
    peers = [_nvlinks(nvml, handle) for handle in handles]
    ids = [_pci_id(nvml.nvmlDeviceGetPciInfo(handle)) for handle in handles]
    relations = {}
    for a in range(len(handles)):
        for b in range(a + 1, len(handles)):
            links = sum(peer == ids[b] for peer in peers[a])
            switched = min(peers[a].count("switch"), peers[b].count("switch"))
            if links or switched:
                relations[a, b] = f"NV{links or switched}"
                continue
            try:
                level = nvml.nvmlDeviceGetTopologyCommonAncestor(handles[a], handles[b])
            except nvml.NVMLError:
                return None
            relations[a, b] = _ANCESTORS.get(int(level), "SYS")
    numa = tuple(_numa(nvml, handle) for handle in handles)
    return Topology(gpus=tuple(f"GPU{index}" for index in range(len(handles))), relations=relations, numa=numa)


def _nvlinks(nvml: Any, handle: Any) -> list[str]:
    """The far end of each active link: a PCI id, or `switch`."""
    ends = []
    for link in range(_MAX_NVLINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
            if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                ends.append("switch")
            else:
                ends.append(_pci_id(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))
        except nvml.NVMLError:
            continue
    return ends


def _numa(nvml: Any, handle: Any) -> str | None:
    """Known through NVML on Grace only; elsewhere sysfs of the PCI device says it."""
    from pathlib import Path

    try:
        text = Path("/sys/bus/pci/devices", _pci_id(nvml.nvmlDeviceGetPciInfo(handle)), "numa_node").read_text("ascii")
    except (OSError, ValueError):
        return None
    return None if text.strip() in ("", "-1") else text.strip()


def _pci_id(info: Any) -> str:
    """sysfs spells the domain with four digits, NVML with eight."""
    domain, _, rest = _text(info.busId).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def probe_smi(run: Run | None = None) -> Probe | None:
    call = run or _run
    listed = call(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"])
    if listed is None:
        return None
    devices = []
    for line in listed.splitlines():
        name, comma, memory = line.rpartition(",")
        if comma and memory.strip().isdecimal():
            devices.append((name.strip(), int(memory) * 1024**2))
    if not devices:
        return None
    matrix = call(["nvidia-smi", "topo", "-m"])
    try:
        topology = parse_topology(matrix, "nvidia-smi topo -m") if matrix else None
    except ConfigError:
        topology = None
    return Probe(devices=tuple(devices), topology=topology, through="nvidia-smi")


def _run(arguments: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(list(arguments), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
