"""Checks of what runs inside tritonserver: Python, numpy, the server itself, its stub and libpython."""

from __future__ import annotations

from collections.abc import Sequence

from seekserve.server.doctor.finding import Finding, error, note, ok, warn
from seekserve.server.doctor.machine import Machine
from seekserve.server.doctor.parse import numbers_of

__all__ = ["check_admin_key", "check_libpython", "check_numpy", "check_python", "check_stub", "check_tritonserver"]

# 24.10 was seen to abort on its first text tensor under numpy 2; 25.07 is the first with the shared-memory CVEs fixed.
_LAST_SEEN_WITHOUT_NUMPY_2 = (2, 51)
_SHM_CVES_FIXED = (2, 59)


def _python_text(machine: Machine) -> str:
    return ".".join(map(str, machine.python))


def check_python(machine: Machine) -> Finding:
    found = f"{_python_text(machine)} ({machine.python_executable})"
    if not (3, 10) <= machine.python[:2] <= (3, 12):
        return warn("Python", found, breaks="untested: the toolkit is tested on 3.10 to 3.12", do="use one of these")
    return ok("Python", found)


def check_numpy(machine: Machine) -> Finding:
    if machine.numpy is None:
        return error("numpy", "not installed", breaks="every Python model", do="pip install 'numpy>=1.26,<2'")
    version = machine.server.version if machine.server is not None else None
    too_old = version is not None and numbers_of(version)[:2] <= _LAST_SEEN_WITHOUT_NUMPY_2
    if numbers_of(machine.numpy)[:1] >= (2,) and too_old:
        return error(
            "numpy",
            f"{machine.numpy} with Triton {version}",
            breaks="the stub aborts on the first text tensor while the server's health stays green",
            do="pip install 'numpy>=1.26,<2'",
        )
    return ok("numpy", machine.numpy)


def check_tritonserver(machine: Machine) -> Finding:
    server = machine.server
    if server is None:
        todo = "pip install 'seekserve[local]', or run inside an NVIDIA Triton container"
        return error("tritonserver", machine.server_problem or "not found", breaks="launch, serve and demo", do=todo)
    found = f"{server.binary} (found by {server.found_by}), version {server.version or 'unknown'}"
    if server.version is None:
        return note("tritonserver", found)
    if numbers_of(server.version)[:2] < _SHM_CVES_FIXED:
        return warn(
            "tritonserver",
            found,
            breaks="before 2.59 (25.07) requests can be turned into code execution "
            "(CVE-2025-23310, -23311, -23319, -23320, -23334)",
            do="keep it on loopback or behind a proxy that you trust; use a 25.07 or later image in production",
        )
    return ok("tritonserver", found)


def check_admin_key(machine: Machine) -> Sequence[Finding]:
    if machine.server is None:
        return ()
    return (
        note(
            "admin key",
            "tritonserver takes it on its command line only, which every user of this machine can read",
            breaks="whoever has an account here can load and unload models of a launch",
            do="keep other accounts off the machine, mount /proc with hidepid=2, or use a container of its own",
        ),
    )


def check_stub(machine: Machine) -> Finding:
    server = machine.server
    if server is None:
        return note("Python stub", "no tritonserver, so none was looked for")
    if not server.has_python_backend:
        return error(
            "Python stub",
            f"the installation of {server.binary} has no Python backend",
            breaks="the seekserve backend, which is a Python backend",
            do="use the nvidia-pytriton wheel or a Triton container",
        )
    if server.stub is None:
        minor = ".".join(map(str, machine.python[:2]))
        return error(
            "Python stub", f"none for Python {minor}", breaks="every Python model", do="use Python 3.10, 3.11 or 3.12"
        )
    running = ".".join(map(str, machine.python[:2]))
    if server.stub_python is not None and server.stub_python != running:
        return warn(
            "Python stub",
            f"built for Python {server.stub_python}, this toolkit runs on {running}",
            breaks="the stub cannot use this environment's packages",
            do=f"install the toolkit and the engine's packages for Python {server.stub_python}",
        )
    return ok("Python stub", f"{server.stub} (Python {server.stub_python or 'unknown'})")


def check_libpython(machine: Machine) -> Finding:
    server = machine.server
    if server is None or not server.needs_libpython:
        return ok("libpython", "not needed from this environment")
    if server.libpython_dir is None:
        minor = ".".join(map(str, machine.python[:2]))
        return error(
            "libpython",
            f"no libpython{minor}.so.1.0 beside {machine.python_executable} or in the system",
            breaks="the stub does not start",
            do=f"install libpython{minor} (Debian), or use a Python built with --enable-shared",
        )
    return ok("libpython", server.libpython_dir)
