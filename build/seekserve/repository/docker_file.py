"""The Dockerfile on disk: whole or not at all, and only one that this toolkit made and nobody edited is replaced."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from seekserve.errors import InputError, TargetExists

from .docker import is_ours
from .write import WriteResult

__all__ = ["plan_dockerfile", "write_dockerfile"]


def plan_dockerfile(given: str, text: str, *, repository: Path, force: bool) -> WriteResult:
    """What `write_dockerfile` would do. Writes nothing.

    An empty `given` means a folder of its own beside the repository: some builders send all of that folder to docker.
    """
    default = repository.with_name(f"{repository.name}.docker") / "Dockerfile"
    path = Path(given).expanduser().absolute() if given else default
    if path == repository or repository in path.parents:
        raise InputError(
            f"--dockerfile {path} lies inside the repository {repository}, which holds models only",
            hint=f"leave the path out: it goes to {default}",
        )
    if path != default and not path.parent.is_dir():
        raise InputError(f"--dockerfile {path}: no folder {path.parent}", hint="make it first")
    files = {path.name: text}
    if not (path.exists() or path.is_symlink()):
        return WriteResult(folder=path, action="create", files=files)
    old = _read(path)
    if old == text:
        return WriteResult(folder=path, action="keep", files=files)
    if not force and (old is None or not is_ours(old)):
        raise TargetExists(
            f"{path} was not made by `seekserve render --dockerfile`, or was edited since",
            hint="name another path, or replace it with --force",
        )
    if not path.is_file():
        raise TargetExists(f"{path} is not a file", hint="name another path")
    return WriteResult(folder=path, action="replace", files=files)


def write_dockerfile(result: WriteResult) -> None:
    if result.action == "keep":
        return
    path = result.folder
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(next(iter(result.files.values())), encoding="utf-8", newline="")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
