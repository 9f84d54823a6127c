"""Dockerfile and `docker run` line for a rendered repository; argument lists from data, nothing is run here.

Bundle and repository are mounted read-only under the very paths they have outside, so that what was rendered stays
true inside. Ports are published on loopback. A path is one word wherever it goes: JSON, CSV or shell.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import seekserve
from seekserve.errors import InputError
from seekserve_backend.contract.bundle import Bundle

from .environment import render_template
from .images import BaseImage
from .placement import Placement

__all__ = ["CONTAINER_BACKENDS", "WHEEL", "Container", "build_commands", "dockerfile_text", "is_ours", "linked_folders"]

WHEEL = f"seekserve-{seekserve.__version__}-py3-none-any.whl"
CONTAINER_BACKENDS = "/opt/tritonserver/backends"

_TEMPLATE = "Dockerfile.j2"
_MARK = "# Made by seekserve render; sha256 of what follows: "
_MIB = 1024 * 1024
_DEFAULT_SHM_BYTES = 64 * _MIB
_INSTANCE_SHM_BYTES = 256 * _MIB
"""Triton's Python stub starts with 1 MiB and grows with what is in flight; docker's default is 64 MiB for all."""
_STOP_TIMEOUT_S = 60
"""Longer than `launch` waits for what is in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    model_name: str
    repository: Path
    bundle_dir: Path
    linked: Sequence[Path]
    """Folders outside the bundle that links in it lead to."""
    placement: Placement
    world_size: int
    nodes: int
    ports: tuple[int, int, int]
    """HTTP, gRPC, metrics."""

    @property
    def tag(self) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", self.model_name.lower()).strip("-") or "model"
        return f"seekserve/{name}:{seekserve.__version__}"

    def launch_arguments(self) -> list[str]:
        """What comes after `seekserve launch`."""
        http, grpc, metrics = map(str, self.ports)
        words = [os.fspath(self.repository), "--backend-dir", CONTAINER_BACKENDS]
        words += ["--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
        # Every address of the container, of which only loopback ports of the host are published.
        return words if self.nodes > 1 else [*words, "--host", "0.0.0.0"]

    def run(self) -> list[str]:
        """The argument list of `docker run`."""
        argv = ["docker", "run", "--rm", "--init", "--stop-timeout", str(_STOP_TIMEOUT_S), *self._gpus()]
        argv += self._shared_memory()
        argv += ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]
        for folder in dict.fromkeys([self.bundle_dir, *self.linked, self.repository]):
            argv += ["--mount", _csv("type=bind", f"source={folder}", f"target={folder}", "readonly")]
        if self.nodes > 1:
            argv += ["--network", "host"]
        else:
            for port in self.ports:
                argv += ["--publish", f"127.0.0.1:{port}:{port}"]
        return [*argv, self.tag]

    def _gpus(self) -> list[str]:
        if self.nodes > 1:
            return ["--gpus", "all"]
        chosen = [gpu for each in self.placement.gpus for gpu in each]
        # A container numbers its GPUs from 0, so all up to the highest one go in: the numbers stay what they are.
        count = max(chosen) + 1 if chosen else self.world_size
        return ["--gpus", _csv(f"device={','.join(map(str, range(count)))}")]

    def _shared_memory(self) -> list[str]:
        if self.world_size > 1:
            # NCCL and MPI exchange through shared memory, by amounts that depend on the machine's links.
            return ["--ipc", "host"]
        size = _DEFAULT_SHM_BYTES + self.placement.instances * _INSTANCE_SHM_BYTES
        return ["--shm-size", f"{size // _MIB}m"]


def dockerfile_text(bundle: Bundle, image: BaseImage, container: Container) -> str:
    folder = "/tmp/seekserve"
    version = "" if bundle.trtllm is None else f", TensorRT-LLM {bundle.trtllm.version}"
    body = render_template(
        _TEMPLATE,
        {
            "header": [
                f"Serves {container.model_name}: {bundle.family}, {bundle.engine}{version}.",
                f"Base image: {image.source}.",
            ],
            "image": image.name,
            "copy_wheel": [WHEEL, f"{folder}/"],
            "wheel_path": f"{folder}/{WHEEL}",
            "install_backend": ["seekserve", "install-backend", CONTAINER_BACKENDS, "--site-packages", "none"],
            "entrypoint": ["seekserve", "launch"],
            "arguments": container.launch_arguments(),
        },
    )
    return f"{_MARK}{_digest(body)}\n{body}"


def is_ours(text: str) -> bool:
    """Made by this toolkit and not edited since."""
    first, _, body = text.partition("\n")
    return first == f"{_MARK}{_digest(body)}"


def build_commands(dockerfile: Path, container: Container) -> list[list[str]]:
    """From the wheel to the image; the wheel lies beside the Dockerfile.

    Never a name for an index to resolve: it would take whatever somebody has put there under that name.
    """
    context = os.fspath(dockerfile.parent)
    source = Path(__file__).resolve().parents[3]
    if (source / "pyproject.toml").is_file():
        wheel = ["python3", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", context, os.fspath(source)]
    else:
        wheel = ["cp", WHEEL, f"{context}/"]
    return [
        wheel,
        ["docker", "build", "--file", os.fspath(dockerfile), "--tag", container.tag, context],
    ]


def linked_folders(bundle_dir: Path) -> tuple[Path, ...]:
    """Where links in the bundle lead to, link by link (a hub cache links once more). Those inside are left out."""
    found: dict[Path, None] = {}
    for path in sorted(bundle_dir.rglob("*")):
        hops = 0
        while path.is_symlink():
            path = Path(os.path.normpath(path.parent / path.readlink()))
            hops += 1
            if hops > 40:
                raise InputError(f"{path} is a link that leads in a circle")
            if bundle_dir not in path.parents:
                found[path.parent] = None
    inner = {folder for folder in found if any(other in folder.parents for other in found)}
    return tuple(folder for folder in found if folder not in inner)


def _csv(*fields: str) -> str:
    """Docker reads these options as one line of CSV; a path may hold a comma or a quote."""
    if any("\n" in each or "\r" in each for each in fields):
        raise InputError(f"docker takes no path with a line break: {fields!r}")
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
