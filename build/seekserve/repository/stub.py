"""The Python stub that a backend directory brings along, as a container's does, held against what shall run in it.

Compiled packages fit one minor version of Python; the backend's own source runs on any supported one. With `none` as
packages the stub keeps those of its own Python, and the version of this command's Python says nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from seekserve.errors import ConflictError

__all__ = ["OLDEST_PYTHON", "check_stub", "stub_python"]

OLDEST_PYTHON = (3, 10)
_STUB = Path("python") / "triton_python_backend_stub"


def stub_python(backends_dir: Path) -> str | None:
    """`3.12`, read from the library that the stub names; None where the directory has no stub or it does not say."""
    path = backends_dir / _STUB
    if not path.is_file():
        return None
    match = re.search(rb"libpython(3\.\d+)\.so", path.read_bytes())
    return match.group(1).decode() if match else None


def check_stub(backends_dir: Path, site_packages: str | None) -> str | None:
    """The stub's Python. Raises ConflictError when the backend or its packages cannot run in it."""
    found = stub_python(backends_dir)
    if found is None:
        return None
    if _number(found) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ConflictError(
            f"the stub in {backends_dir / 'python'} runs Python {found}; the backend needs {oldest} or later",
            hint="use a newer image, or put a stub for another Python there",
        )
    packages = None if site_packages is None else _python_of(site_packages)
    if packages is not None and packages != found:
        raise ConflictError(
            f"the stub in {backends_dir / 'python'} runs Python {found}, {site_packages} holds packages of {packages}",
            hint=f"--site-packages none keeps the server's own packages; or install with a Python {found} environment",
        )
    return found


def _python_of(site_packages: str) -> str:
    """By the folder's own name (`lib/python3.12/site-packages`), else this command's."""
    named = [part for part in Path(site_packages).parts if re.fullmatch(r"python3\.\d+", part)]
    return named[-1].removeprefix("python") if named else f"{sys.version_info.major}.{sys.version_info.minor}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
