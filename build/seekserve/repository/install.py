"""The backend's folder in a Triton backend directory: model.py, the package `seekserve_backend` and version.json.

version.json lists every file by hash and says which packages the stub shall see (it knows of no virtual environment).
Installed whole or not at all; only files that version.json lists are ever removed or replaced.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import seekserve
from seekserve.errors import ConflictError, InputError, TargetExists
from seekserve.output import files_in, json_text, new_folder, problems_text
from seekserve_backend.contract.bundle import BUNDLE_SCHEMA
from seekserve_backend.contract.policy import POLICY_SCHEMA

from .render import BACKEND_NAME, REPOSITORY_SCHEMA

__all__ = [
    "VERSION_FILE",
    "Installed",
    "backend_files",
    "check_installed",
    "default_site_packages",
    "install",
    "read_installed",
    "uninstall",
    "version_json",
]

VERSION_FILE = "version.json"
_PACKAGE = "seekserve_backend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What version.json says."""

    toolkit_version: str
    python_version: str
    site_packages: str | None
    files: Mapping[str, str]
    """POSIX path relative to the backend's folder -> sha256."""


def backend_files() -> dict[str, Path]:
    """What gets installed: POSIX path in the backend's folder -> source file."""
    package = _package_folder()
    entry = package / "triton" / "model.py"
    if not entry.is_file():
        raise InputError(f"no {entry}: this installation of seekserve is incomplete", hint="install seekserve again")
    sources = {f"{_PACKAGE}/{path.relative_to(package).as_posix()}": path for path in sorted(package.rglob("*.py"))}
    return {"model.py": entry, **sources}


def default_site_packages() -> str | None:
    """The running virtual environment's packages; None outside of one (in a container the stub has its own)."""
    return None if sys.prefix == sys.base_prefix else sysconfig.get_path("purelib")


def version_json(files: Mapping[str, Path], site_packages: str | None) -> str:
    data = {
        "name": BACKEND_NAME,
        "toolkit_version": seekserve.__version__,
        "python_version": _python_version(),
        "site_packages": site_packages,
        "schemas": {"bundle": BUNDLE_SCHEMA, "policy": POLICY_SCHEMA, "repository": REPOSITORY_SCHEMA},
        "files": {name: _sha256(path) for name, path in sorted(files.items())},
    }
    return json_text(data) + "\n"


def read_installed(folder: Path) -> Installed | None:
    """None when `folder` holds no version.json of ours."""
    try:
        data = json.loads((folder / VERSION_FILE).read_text(encoding="utf-8"))
        files = {str(name): str(digest) for name, digest in data["files"].items()}
        if data["name"] != BACKEND_NAME or any(_leaves_folder(name) for name in files):
            return None
        site = data["site_packages"]
        return Installed(
            toolkit_version=str(data["toolkit_version"]),
            python_version=str(data["python_version"]),
            site_packages=None if site is None else str(site),
            files=files,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def install(folder: Path, site_packages: str | None, *, dry_run: bool = False) -> str:
    """Returns `installed`, `replaced` or `already installed`; with `dry_run`, what it would be."""
    sources = backend_files()
    text = version_json(sources, site_packages)
    exists = folder.exists() or folder.is_symlink()
    if exists:
        installed = _own(folder)
        _refuse_foreign(folder, installed)
        if not _damage(folder, installed) and (folder / VERSION_FILE).read_text(encoding="utf-8") == text:
            return "already installed"
    if not dry_run:
        with new_folder(folder, replace=exists) as temporary:
            for name, source in sources.items():
                target = temporary / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            (temporary / VERSION_FILE).write_text(text, encoding="utf-8")
    return "replaced" if exists else "installed"


def check_installed(folder: Path, site_packages: str | None) -> Installed:
    """Raises InputError when nothing whole is installed, ConflictError when it is not what this toolkit installs."""
    if not folder.exists():
        raise InputError(f"no backend at {folder}", hint=f"install it: seekserve install-backend {folder.parent}")
    installed = _own(folder)
    damage = _damage(folder, installed)
    if damage:
        raise InputError(
            problems_text(f"the backend at {folder} is damaged", damage),
            hint=f"install it again: seekserve install-backend {folder.parent}",
        )
    differences = _differences(installed, site_packages)
    if differences:
        raise ConflictError(
            problems_text(f"the backend at {folder} is whole, but not what this toolkit installs", differences),
            hint=f"bring it up to date: seekserve install-backend {folder.parent}",
        )
    return installed


def uninstall(folder: Path, *, dry_run: bool = False) -> list[str]:
    """Removes the files that version.json lists, and the folders they leave empty. Returns what was removed."""
    if not (folder.exists() or folder.is_symlink()):
        return []
    installed = _own(folder)
    _refuse_foreign(folder, installed)
    removed = files_in(folder)
    if not dry_run:
        shutil.rmtree(folder)
    return removed


def _differences(installed: Installed, site_packages: str | None) -> list[str]:
    found = []
    if installed.toolkit_version != seekserve.__version__:
        found.append(f"it is of version {installed.toolkit_version}, this toolkit is {seekserve.__version__}")
    current = {name: _sha256(path) for name, path in backend_files().items()}
    other = sorted(name for name in {*current, *installed.files} if current.get(name) != installed.files.get(name))
    if other:
        found.append(f"{len(other)} files differ, the first is {other[0]}")
    if installed.python_version != _python_version():
        found.append(f"it was installed by Python {installed.python_version}, this is {_python_version()}")
    if installed.site_packages != site_packages:
        found.append(f"its packages come from {installed.site_packages}, this toolkit would use {site_packages}")
    return found


def _own(folder: Path) -> Installed:
    """Raises TargetExists unless the folder is an installation of ours."""
    installed = None if folder.is_symlink() or not folder.is_dir() else read_installed(folder)
    if installed is None:
        raise TargetExists(
            f"{folder} was not made by `seekserve install-backend` (no {VERSION_FILE} of ours in it)",
            hint="choose another backend directory, or move it away",
        )
    return installed


def _refuse_foreign(folder: Path, installed: Installed) -> None:
    foreign = [name for name in files_in(folder) if not _is_ours(name, installed)]
    if foreign:
        raise TargetExists(
            problems_text(f"{folder} holds files that seekserve did not put there", foreign),
            hint="move them away first",
        )


def _is_ours(name: str, installed: Installed) -> bool:
    """Listed, version.json itself, or the byte code that Python left beside a listed source."""
    path = PurePosixPath(name)
    if path.suffix == ".pyc" and path.parent.name == "__pycache__":
        source = path.parent.parent / (path.name.partition(".")[0] + ".py")
        return source.as_posix() in installed.files
    return name == VERSION_FILE or name in installed.files


def _damage(folder: Path, installed: Installed) -> list[str]:
    found = []
    for name, digest in installed.files.items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif _sha256(path) != digest:
            found.append(f"{name} was changed since it was installed")
    return found


def _leaves_folder(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or not path.parts


def _python_version() -> str:
    """Compiled packages fit one minor version only."""
    return ".".join(platform.python_version_tuple()[:2])


def _package_folder() -> Path:
    import seekserve_backend

    return Path(str(seekserve_backend.__file__)).resolve().parent


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
