"""Rendered files -> one model folder on disk, whole or not at all. Nothing beside that folder is touched.

`rendered.json` in the folder lists what this toolkit wrote, by hash. Only a folder that carries it is ever replaced,
and only while it still holds exactly those files; anything edited or added since is somebody's work and stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import seekserve
from seekserve.errors import ConflictError, InputError, TargetExists
from seekserve.output import files_in, json_text, new_folder, problems_text, write_files
from seekserve_backend.contract.bundle import BUNDLE_FILE

from .check import repository_problems

__all__ = ["MANIFEST_FILE", "WriteResult", "plan_folder", "plan_write", "write_model", "write_models"]

MANIFEST_FILE = "rendered.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    folder: Path
    action: str
    """`create`, `replace`, or `keep` when the folder holds these very files already."""
    files: Mapping[str, str]
    """POSIX path relative to the repository -> text, the manifest included."""


def plan_write(
    repository: Path,
    model_name: str,
    files: Mapping[str, str],
    *,
    bundle_dir: Path,
    force: bool,
    beside: Sequence[str] = (),
) -> WriteResult:
    """What `write_model` would do. Raises when it must not be done; writes nothing.

    `beside`: models that are written in the same run, each judged by its own plan.
    """
    _check_repository(repository, {model_name, *beside}, bundle_dir)
    return _plan(repository / model_name, files, force=force, what="model folder")


def plan_folder(folder: Path, inside: Mapping[str, str], *, force: bool, what: str) -> WriteResult:
    """The same for a folder that is no model: files by their paths inside it. `what` it is called in errors."""
    files = {f"{folder.name}/{path}": text for path, text in inside.items()}
    return _plan(folder, files, force=force, what=what)


def _plan(folder: Path, files: Mapping[str, str], *, force: bool, what: str) -> WriteResult:
    inside = {path.removeprefix(f"{folder.name}/"): text for path, text in files.items()}
    complete = {**files, f"{folder.name}/{MANIFEST_FILE}": _manifest(inside)}
    if not (folder.exists() or folder.is_symlink()):
        return WriteResult(folder=folder, action="create", files=complete)
    changes = _changes(folder, inside)
    if changes and not force:
        raise TargetExists(
            problems_text(f"{what} {folder} was changed since it was rendered", changes),
            hint="move the changes away, or replace the folder with --force",
        )
    is_recorded = _read_manifest(folder / MANIFEST_FILE) == _hashes(inside)
    same = is_recorded and not changes and all(_read(folder / path) == text for path, text in inside.items())
    return WriteResult(folder=folder, action="keep" if same else "replace", files=complete)


def write_model(result: WriteResult) -> None:
    write_models([result])


def write_models(results: Sequence[WriteResult]) -> None:
    """All contents are on disk before the first folder takes its place."""
    with contextlib.ExitStack() as stack:
        for result in results:
            if result.action == "keep":
                continue
            prefix = f"{result.folder.name}/"
            temporary = stack.enter_context(new_folder(result.folder, replace=result.action == "replace"))
            write_files(temporary, {path.removeprefix(prefix): text for path, text in result.files.items()})


def _check_repository(repository: Path, own: Collection[str], bundle_dir: Path) -> None:
    bundle, target = bundle_dir.resolve(), repository.resolve()
    if target == bundle or bundle in target.parents:
        raise InputError(f"--out {repository} lies inside the bundle {bundle_dir}", hint="choose a folder of its own")
    if target in bundle.parents:
        raise InputError(
            f"the bundle {bundle_dir} lies inside the repository {repository}, where Triton would take it for a model",
            hint="move one of them",
        )
    if not repository.exists():
        return
    if not repository.is_dir():
        raise InputError(f"--out {repository} is not a folder")
    if (repository / BUNDLE_FILE).exists():
        raise InputError(f"--out {repository} is a bundle, not a model repository", hint="choose a folder of its own")
    # A broken folder of our own name is judged by its manifest, below.
    problems = [text for text in repository_problems(repository) if text.partition("/")[0] not in own]
    if problems:
        raise ConflictError(
            problems_text(f"{repository} is no clean model repository", problems),
            hint="a repository holds model folders only: move the others away, or choose another --out",
        )


def _manifest(files: Mapping[str, str]) -> str:
    data = {"made_by": "seekserve", "toolkit_version": seekserve.__version__, "files": _hashes(files)}
    return json_text(data) + "\n"


def _hashes(files: Mapping[str, str]) -> dict[str, str]:
    return {path: hashlib.sha256(text.encode()).hexdigest() for path, text in sorted(files.items())}


def _changes(folder: Path, inside: Mapping[str, str]) -> list[str]:
    """What the folder holds that neither its manifest nor the new content accounts for.

    Raises TargetExists when it has no manifest.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise TargetExists(f"{folder} is not a folder that `render` made", hint="choose another --name or --out")
    hashes = _read_manifest(folder / MANIFEST_FILE)
    if hashes is None:
        raise TargetExists(
            f"{folder} was not made by `seekserve render` (no {MANIFEST_FILE} of ours in it)",
            hint="choose another --name or --out, or move the folder away",
        )
    changes = []
    for path in files_in(folder):
        if path == MANIFEST_FILE or (path in inside and _read(folder / path) == inside[path]):
            continue
        if path not in hashes:
            changes.append(f"{path} was added")
        elif hashlib.sha256((folder / path).read_bytes()).hexdigest() != hashes[path]:
            changes.append(f"{path} was edited")
    return changes


def _read_manifest(path: Path) -> dict[str, str] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["made_by"] != "seekserve":
            return None
        return {str(name): str(digest) for name, digest in data["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
