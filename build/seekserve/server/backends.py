"""The backend directory of one launch: the user's backends, and Triton's Python runtime beside them.

Triton looks for both in one directory. Where the user's has no runtime, a directory of this launch joins the two and
nothing is written to the user's. Triton refuses a runtime library whose real path leaves its folder, so the library and
the stub are copied (about 3 MB), not linked.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import seekserve
from seekserve.server.find import Tritonserver, running_minor
from seekserve.server.models import OUR_BACKEND

__all__ = ["check_backends", "compose_backend_dir", "has_runtime"]

_LIBRARY = "libtriton_python.so"
_STUB = "triton_python_backend_stub"
_UTILS = "triton_python_backend_utils.py"


def has_runtime(backend_dir: Path) -> bool:
    return all((backend_dir / "python" / name).is_file() for name in (_LIBRARY, _STUB))


def check_backends(backend_dir: Path, server: Tritonserver | None, *, needs_ours: bool) -> list[str]:
    """A sentence for everything that would stop a Python model from loading."""
    if not backend_dir.is_dir():
        return [f"--backend-dir {backend_dir} is not a folder; run `seekserve install-backend {backend_dir}`"]
    problems = _check_ours(backend_dir / OUR_BACKEND) if needs_ours else []
    if server is None or has_runtime(backend_dir):
        return problems
    if server.python_backend_dir is None:
        problems.append(
            f"neither {backend_dir} nor the installation of {server.binary} holds python/{_LIBRARY}; "
            "use a tritonserver that has the Python backend"
        )
    elif server.stub is None:
        problems.append(
            f"{server.binary} has no {_STUB} for Python {running_minor()}, which runs this command; use another Python"
        )
    return problems


def _check_ours(folder: Path) -> list[str]:
    command = f"run `seekserve install-backend {folder.parent}`"
    if not (folder / "model.py").is_file():
        return [
            f"the backend {OUR_BACKEND!r} is not installed in {folder.parent} (no {folder / 'model.py'}); {command}"
        ]
    try:
        record = json.loads((folder / "version.json").read_text(encoding="utf-8"))
        installed, python, packages = record["toolkit_version"], record["python_version"], record["site_packages"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{folder / 'version.json'} cannot be read ({error!r}); {command}"]
    problems = []
    if installed != seekserve.__version__:
        problems.append(
            f"the backend in {folder} is version {installed}, this toolkit is {seekserve.__version__}; {command}"
        )
    if packages is not None and python != running_minor():
        problems.append(
            f"the backend in {folder} was installed with the packages of Python {python}, "
            f"this command runs on {running_minor()}; {command}"
        )
    return problems


def compose_backend_dir(backend_dir: Path, server: Tritonserver, target: Path) -> Path:
    """The directory to hand to tritonserver; `target` is made only when the user's lacks the runtime."""
    if has_runtime(backend_dir):
        return backend_dir.resolve()
    assert server.python_backend_dir is not None, "check_backends passed"
    assert server.stub is not None, "check_backends passed"
    runtime = target / "python"
    runtime.mkdir(parents=True)
    shutil.copy2(server.python_backend_dir / _LIBRARY, runtime / _LIBRARY)
    shutil.copy2(server.python_backend_dir / _UTILS, runtime / _UTILS)
    shutil.copy2(server.stub, runtime / _STUB)
    for entry in sorted(backend_dir.iterdir()):
        if entry.is_dir() and entry.name != "python":
            (target / entry.name).symlink_to(entry.resolve())
    return target
