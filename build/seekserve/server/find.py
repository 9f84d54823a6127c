"""Where tritonserver is, and what it needs beside it to run Python models.

Order: flag, SEEKSERVE_TRITONSERVER, PATH, /opt/tritonserver, the nvidia-pytriton wheel (located, never imported: it is
heavy). The first that exists wins; a path that the user named and that is not there is an error, not a reason to go on.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import InputError, MissingDependency

__all__ = [
    "ENV_VARIABLE",
    "Tritonserver",
    "describe",
    "find_libpython_dir",
    "find_tritonserver",
    "running_minor",
    "stub_python_minor",
    "wheel_root",
]

ENV_VARIABLE = "SEEKSERVE_TRITONSERVER"
_OPT = Path("/opt/tritonserver/bin/tritonserver")
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tritonserver:
    binary: Path
    found_by: str
    """`--tritonserver`, the variable's name, `PATH`, `/opt/tritonserver` or `nvidia-pytriton`."""
    python_backend_dir: Path | None
    """Holds libtriton_python.so; None when this installation has none."""
    stub: Path | None
    """The stub to put beside it: the running Python's minor version where there is a choice."""
    library_dirs: tuple[Path, ...]
    """For LD_LIBRARY_PATH; empty where the installation finds its own libraries."""


def running_minor() -> str:
    """`3.11`: what a stub must be built for to use this environment's packages."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def wheel_root() -> Path | None:
    """The `tritonserver` folder of the nvidia-pytriton wheel."""
    try:
        spec = importlib.util.find_spec("pytriton")
    except (ImportError, ValueError):
        return None
    for location in (spec.submodule_search_locations or ()) if spec else ():
        root = Path(location) / "tritonserver"
        if (root / "bin" / "tritonserver").is_file():
            return root
    return None


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def find_tritonserver(flag: Path | None, env: Mapping[str, str]) -> Tritonserver:
    for named, by in ((flag, "--tritonserver"), (env.get(ENV_VARIABLE), ENV_VARIABLE)):
        if not named:
            continue
        if not _is_executable(Path(named)):
            raise InputError(
                f"tritonserver: {by} names {named}, which is not an executable file",
                hint=f"correct {by} or leave it out to search PATH, {_OPT.parent} and the nvidia-pytriton wheel",
            )
        return describe(Path(named), by)
    on_path = shutil.which("tritonserver", path=env.get("PATH", ""))
    if on_path is not None:
        return describe(Path(on_path), "PATH")
    if _is_executable(_OPT):
        return describe(_OPT, "/opt/tritonserver")
    root = wheel_root()
    if root is not None:
        return describe(root / "bin" / "tritonserver", "nvidia-pytriton")
    raise MissingDependency(
        f"tritonserver was not found: --tritonserver and {ENV_VARIABLE} are not set, PATH has none, "
        f"{_OPT} does not exist, and {sys.executable} has no nvidia-pytriton",
        hint="pip install 'seekserve[local]' (x86-64 Linux), or run inside an NVIDIA Triton container",
    )


def describe(binary: Path, found_by: str) -> Tritonserver:
    """What lies around a binary: a container's layout (`../backends`) or the wheel's (`../python_backend_stubs`)."""
    root = binary.resolve().parent.parent
    backend = root / "backends" / "python"
    has_backend = (backend / "libtriton_python.so").is_file()
    stubs = (backend / _STUB, root / "python_backend_stubs" / running_minor() / _STUB)
    return Tritonserver(
        binary=binary,
        found_by=found_by,
        python_backend_dir=backend if has_backend else None,
        stub=next((stub for stub in stubs if stub.is_file()), None) if has_backend else None,
        library_dirs=_library_dirs(root),
    )


def _library_dirs(root: Path) -> tuple[Path, ...]:
    vendored = root.parent.parent / "nvidia_pytriton.libs"
    if not vendored.is_dir():
        return ()
    libpython = find_libpython_dir()
    return (vendored,) if libpython is None else (vendored, libpython)


def find_libpython_dir() -> Path | None:
    """The folder of the running Python's shared library, which the wheel's stub loads at start."""
    name = f"libpython{running_minor()}.so.1.0"
    multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    candidates = (
        sysconfig.get_config_var("LIBDIR"),
        str(Path(sys.base_prefix) / "lib"),
        f"/usr/lib/{multiarch}",
        "/usr/lib64",
        "/usr/local/lib",
    )
    return next((Path(folder) for folder in candidates if folder and (Path(folder) / name).is_file()), None)


def stub_python_minor(stub: Path) -> str | None:
    """The Python that a stub was built for, read from the library name inside it: `3.12`."""
    match = re.search(rb"libpython(3\.\d+)\.so", stub.read_bytes())
    return match.group(1).decode() if match else None
