"""This machine, for `--gpu auto`: its GPUs, how they are joined, and what the environment spoils.

Reading is done by a probe that tests replace; judging a plan against what was found is pure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seekserve.errors import ConfigError

from .finding import Finding
from .gpus import FACTS_FOLDER, Gpu, catalogue, gpu_of_device_name
from .inputs import Given, Inputs
from .plan import Source
from .probe import Probe, probe_machine
from .topology import PATHS, Topology, parse_topology
from .yaml_file import read_yaml

__all__ = ["Machine", "environment_findings", "read_machine", "topology_findings"]

_MAX_BYTES = 4_000_000
NCCL_FILES = (Path("/etc/nccl.conf"), Path("~/.nccl.conf"))
"""Read by NCCL itself, so a look at the environment alone misses them; the later one wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    gpu: Gpu | None
    """None when only a pasted topology was given."""
    count: int
    topology: Topology | None
    environment: tuple[Finding, ...]
    read_through: str

    def inputs(self) -> Inputs:
        """What the machine decides where nobody else did."""
        if self.gpu is None:
            return Inputs()
        place = f"this machine, {self.read_through}"
        return Inputs(gpus=Given(self.count, Source.DERIVED, place), nodes=Given(1, Source.DERIVED, place))

    def is_planned_for(self, inputs: Inputs) -> bool:
        return isinstance(inputs.gpu, Given) and str(inputs.gpu.value).lower() == "auto"

    def findings(self, tp: int) -> list[Finding]:
        """About this machine, for a plan with this TP."""
        joined = topology_findings(self.topology, tp) if self.topology is not None else []
        return [*self.environment, *joined]

    def lines(self) -> list[str]:
        if self.topology is None:
            return [f"Machine, {self.read_through}: {self.count} GPUs, no topology"]
        out = [f"Machine, {self.read_through}: {len(self.topology.gpus)} GPUs"]
        for group in self.topology.groups() if self.topology.has_nvlink else self.topology.groups("PXB"):
            names = ", ".join(f"GPU{index}" for index in group)
            farthest = self.topology.farthest(group)
            path = f"joined by {_path(farthest)} ({farthest})" if farthest else "alone"
            sockets = self.topology.sockets(group)
            where = f", NUMA node{'s' * (len(sockets) != 1)} {', '.join(sockets)}" if sockets else ""
            out.append(f"  {names}: {path}{where}")
        return out

    def to_json(self) -> dict[str, object]:
        topology = self.topology
        return {
            "read_through": self.read_through,
            "gpus": self.count,
            "nvlink_groups": [list(group) for group in topology.groups()] if topology else None,
            "numa_nodes": list(topology.numa) if topology else None,
        }


def read_machine(
    topology_file: Path | None,
    environ: Mapping[str, str],
    *,
    reads_gpus: bool,
    probe: Callable[[], Probe | None] = probe_machine,
    nccl_files: Sequence[Path] = NCCL_FILES,
) -> Machine:
    """NCCL's own files count as environment, variables win.

    Raises ConfigError when `--gpu auto` finds no GPU, several kinds, or one that the catalogue does not have.
    """
    found = probe() if reads_gpus else None
    if reads_gpus and (found is None or not found.devices):
        raise ConfigError(
            "--gpu auto: no NVIDIA GPU found here, neither through NVML (pip install nvidia-ml-py) nor nvidia-smi",
            hint="name one of the catalogue, such as --gpu h200_sxm --gpus 8",
        )
    topology = found.topology if found else None
    if topology_file is not None:
        topology = parse_topology(_text_of(topology_file), str(topology_file))
    settings = {**_nccl_settings(nccl_files), **environ}
    return Machine(
        gpu=_one_kind(found.devices) if found else None,
        count=len(found.devices) if found else len(topology.gpus if topology else ()),
        topology=topology,
        environment=tuple(environment_findings(settings, has_nvlink=topology is not None and topology.has_nvlink)),
        read_through=found.through if found else str(topology_file),
    )


def topology_findings(topology: Topology, tp: int) -> list[Finding]:
    """TP groups are consecutive GPUs, as launchers number them."""
    count = len(topology.gpus)
    if tp < 2:
        return []
    if tp > count:
        message = f"tp {tp} on a host of {count} GPUs"
        return [_warning("topology-size", message, f"the topology describes one host: --tp {count} or less inside it")]
    found = []
    groups = topology.groups()
    largest = max(len(group) for group in groups)
    for first in range(0, count - tp + 1, tp):
        members = range(first, first + tp)
        farthest = topology.farthest(members)
        if farthest is None or farthest.startswith("NV"):
            continue
        names = f"GPU{first}-GPU{first + tp - 1}"
        if farthest in ("SYS", "NODE"):
            better = _largest_near_group(topology)
            message = f"the TP group {names} crosses {PATHS[farthest]} ({farthest}), where every layer waits twice"
            found.append(_warning("topology-sockets", message, f"--tp {better} --pp {max(count // better, 1)}"))
        elif topology.has_nvlink:
            message = f"the TP group {names} leaves its NVLink group: {farthest} between some of them"
            found.append(_warning("topology-nvlink", message, f"--tp {largest}, or another CUDA_VISIBLE_DEVICES order"))
    spread = [group for group in groups if len(group) > 1 and len(topology.sockets(group)) > 1]
    if spread and not found:
        nodes = ", ".join(topology.sockets(spread[0]))
        message = f"an NVLink group of {len(spread[0])} GPUs lies on NUMA nodes {nodes}"
        hint = "bind each rank's CPU threads and memory to its own GPU's node"
        found.append(Finding(rule="topology-numa", message=message, hint=hint, severity="note"))
    return found


def environment_findings(environ: Mapping[str, str], *, has_nvlink: bool) -> list[Finding]:
    found = []
    for name, rule in _variables().items():
        value = environ.get(name, "").strip()
        if not value or (rule.get("nvlink") and not has_nvlink):
            continue
        if rule["when"] and not re.fullmatch(rule["when"], value, re.IGNORECASE):
            continue
        message = f"{name}={value[:40]}: {rule['why']}"
        found.append(
            Finding(rule="environment", about=(name,), message=message, hint=rule["advice"], severity=rule["severity"])
        )
    return found


def _nccl_settings(files: Sequence[Path]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in files:
        try:
            text = path.expanduser().read_text(encoding="utf-8", errors="replace")[:_MAX_BYTES]
        except (OSError, RuntimeError):
            continue
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith("#"):
                found[name.strip()] = value.strip()
    return found


def _largest_near_group(topology: Topology) -> int:
    for worst in ("NV", "PIX", "PXB", "PHB"):
        sizes = [len(group) for group in topology.groups(worst)]
        if max(sizes) > 1 and (worst == "PHB" or len(set(sizes)) == 1):
            nearer = max(sizes)
            wider = max(len(group) for group in topology.groups("PHB"))
            return max(nearer, wider if worst != "NV" else nearer)
    return 1


def _one_kind(devices: Sequence[tuple[str, int]]) -> Gpu:
    names = list(dict.fromkeys(name for name, _ in devices))
    if len(names) > 1:
        raise ConfigError(
            f"--gpu auto: this machine has different GPUs: {', '.join(names)}",
            hint="name the one to plan for with --gpu",
        )
    gpu = gpu_of_device_name(names[0])
    if gpu is None:
        known = ", ".join(catalogue())
        raise ConfigError(
            f"--gpu auto: {names[0]!r} is not in the catalogue", hint=f"give the nearest with --gpu: {known}"
        )
    # What the driver reports beats the catalogue's figure.
    return replace(gpu, memory_bytes=min(size for _, size in devices) or gpu.memory_bytes)


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"--topology: {path} is larger than any topology ({_MAX_BYTES:,} bytes)")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"--topology: cannot read {path}: {error.strerror}") from error


def _path(code: str) -> str:
    return PATHS["NV" if code.startswith("NV") else code]


def _warning(rule: str, message: str, hint: str) -> Finding:
    return Finding(rule=rule, message=message, hint=hint, severity="warning")


@functools.cache
def _variables() -> Mapping[str, Any]:
    variables: Mapping[str, Any] = read_yaml(FACTS_FOLDER / "environment.yaml", setting="environment rules")[
        "variables"
    ]
    return variables
