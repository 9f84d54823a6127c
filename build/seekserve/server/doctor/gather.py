"""Looks at this machine and writes down what the checks need. Starts nothing that lasts, changes nothing."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seekserve.errors import InputError
from seekserve.server.doctor.machine import Machine, ServerFacts
from seekserve.server.doctor.parse import GPU_QUERY, parse_images, parse_mpirun, parse_nvidia_smi
from seekserve.server.find import Tritonserver, find_libpython_dir, find_tritonserver, stub_python_minor
from seekserve.server.options import DEFAULT_PORTS
from seekserve.server.ports import is_free
from seekserve.server.record import records_dir
from seekserve.server.shm import SHM_DIR, TRITON_DEFAULT_PREFIX, leftovers

__all__ = ["gather"]

# The wheel does not say which Triton it holds.
_WHEEL_TRITON = {"0.7.0": "2.51.0"}
_STUB_NAME = "triton_python_backend_stub"


def gather(env: Mapping[str, str]) -> Machine:
    server, problem = _server(env)
    shm_total, shm_free = _disk(SHM_DIR)
    regions, orphans = _leftovers()
    files_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    locked_limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return Machine(
        python=(sys.version_info.major, sys.version_info.minor, sys.version_info.micro),
        python_executable=sys.executable,
        numpy=_version("numpy"),
        server=server,
        server_problem=problem,
        shm_total_bytes=shm_total,
        shm_free_bytes=shm_free,
        shm_leftovers=regions,
        orphan_stubs=orphans,
        open_files_limit=None if files_limit == resource.RLIM_INFINITY else files_limit,
        locked_memory_limit_bytes=None if locked_limit == resource.RLIM_INFINITY else locked_limit,
        busy_ports=tuple(port for port in DEFAULT_PORTS if not is_free("127.0.0.1", port)),
        **_gpus(env),
        env=env,
        mpirun=_first_line(["mpirun", "--version"], env),
        images=_images(env),
        state_free_bytes=_disk(records_dir(env))[1],
        temporary_free_bytes=_disk(Path(tempfile.gettempdir()))[1],
    )


def _version(distribution: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _server(env: Mapping[str, str]) -> tuple[ServerFacts | None, str]:
    try:
        server = find_tritonserver(None, env)
    except InputError as error:
        return None, error.message
    libpython = find_libpython_dir()
    facts = ServerFacts(
        binary=str(server.binary),
        found_by=server.found_by,
        version=_triton_version(server, env),
        has_python_backend=server.python_backend_dir is not None,
        stub=None if server.stub is None else str(server.stub),
        stub_python=None if server.stub is None else stub_python_minor(server.stub),
        needs_libpython=bool(server.library_dirs),
        libpython_dir=None if libpython is None else str(libpython),
    )
    return facts, ""


def _triton_version(server: Tritonserver, env: Mapping[str, str]) -> str | None:
    written = server.binary.resolve().parent.parent / "TRITON_VERSION"
    if written.is_file():
        return written.read_text(encoding="utf-8").strip() or None
    if server.library_dirs:
        return _WHEEL_TRITON.get(_version("nvidia-pytriton") or "")
    return env.get("TRITON_SERVER_VERSION") or None


def _disk(path: Path) -> tuple[int | None, int | None]:
    """(total, free) of the file system that holds `path` or will hold it."""
    existing = next((parent for parent in (path, *path.parents) if parent.is_dir()), None)
    if existing is None or (path == SHM_DIR and existing != SHM_DIR):
        return None, None
    usage = shutil.disk_usage(existing)
    return usage.total, usage.free


def _leftovers() -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Region files that no running process names on its command line, and stubs whose parent is not a server."""
    import psutil

    lines: list[str] = []
    orphans: list[int] = []
    for process in psutil.process_iter():
        try:
            arguments = process.cmdline()
            if not arguments:
                continue
            lines.append(" ".join(arguments))
            if Path(arguments[0]).name == _STUB_NAME and process.ppid() == 1:
                orphans.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    regions = [path.name for prefix in (TRITON_DEFAULT_PREFIX, "seekserve_") for path in leftovers(prefix)]
    return tuple(name for name in regions if not any(_owner_mark(name) in line for line in lines)), tuple(orphans)


def _owner_mark(region: str) -> str:
    """What a living owner's command line holds: our prefix (the server's), or Triton's whole name (the stub's)."""
    return "_".join(region.split("_")[:2]) + "_" if region.startswith("seekserve_") else region


def _run(argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str] | None:
    """(status, stdout, stderr); None when the program is not installed."""
    path = shutil.which(argv[0], path=env.get("PATH", os.defpath))
    if path is None:
        return None
    try:
        done = subprocess.run([path, *argv[1:]], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (subprocess.TimeoutExpired, OSError) as error:
        return 1, "", str(error)
    return done.returncode, done.stdout, done.stderr


def _first_line(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    result = _run(argv, env)
    return None if result is None or result[0] != 0 else parse_mpirun(result[1])


def _images(env: Mapping[str, str]) -> tuple[str, ...] | None:
    result = _run(["docker", "images", "--format", "{{.Repository}}:{{.Tag}}"], env)
    return None if result is None or result[0] != 0 else parse_images(result[1])


def _gpus(env: Mapping[str, str]) -> dict[str, Any]:
    result = _run(["nvidia-smi", f"--query-gpu={','.join(GPU_QUERY)}", "--format=csv,noheader,nounits"], env)
    if result is None:
        return {"has_nvidia_smi": False}
    status, out, err = result
    if status != 0:
        said = (out + err).strip().splitlines()
        return {"has_nvidia_smi": True, "nvidia_smi_error": said[0] if said else f"exit status {status}"}
    try:
        return {"has_nvidia_smi": True, "gpus": parse_nvidia_smi(out)}
    except ValueError as error:
        return {"has_nvidia_smi": True, "nvidia_smi_error": str(error)}
