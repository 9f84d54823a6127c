"""The work folder `<target>.build`: what finished steps made, and the journal that says from which inputs.

A step counts as finished only when its result was renamed into place, its line is in the journal, and every file still
has its size. A changed input makes another digest, and with it every later step is done anew. The folder is locked
while a build runs in it, and nothing that this module did not make is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seekserve.errors import InputError, TargetExists
from seekserve.output import files_in, json_text, os_error_text

__all__ = ["JOURNAL", "Work", "check_work", "discard_finished", "finished_steps", "open_work", "work_folder"]

JOURNAL: Final = "journal.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    folder: Path
    lock: int
    """Descriptor of the locked folder."""

    def result(self, step: str) -> Path:
        return self.folder / step

    def partial(self, step: str) -> Path:
        return self.folder / f"{step}.partial"

    def log(self, step: str) -> Path:
        return self.folder / f"{step}.log"

    def keep_only(self, finished: Collection[str], steps: Collection[str]) -> None:
        """Removes what other steps, and other attempts at these, have left: nobody will use it, and it may be large."""
        entries = _entries(self.folder)
        self._write({name: entry for name, entry in entries.items() if name in finished})
        for step in {*entries, *steps}:
            shutil.rmtree(self.partial(step), ignore_errors=True)
            if step not in finished:
                shutil.rmtree(self.result(step), ignore_errors=True)

    def finish(self, step: str, inputs: str) -> None:
        """The result first, then its line: a step without a line is done again."""
        self.partial(step).rename(self.result(step))
        files = {name: (self.result(step) / name).stat().st_size for name in files_in(self.result(step))}
        self._write({**_entries(self.folder), step: {"inputs": inputs, "files": files}})

    def _write(self, entries: Mapping[str, Any]) -> None:
        temporary = self.folder / f"{JOURNAL}.partial"
        temporary.write_text(json_text({"version": _VERSION, "steps": dict(entries)}) + "\n", encoding="utf-8")
        temporary.replace(self.folder / JOURNAL)


def work_folder(target: Path) -> Path:
    return target.with_name(f"{target.name}.build")


def finished_steps(folder: Path, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Of `inputs` (step -> digest, in order) those that need not be done again: a first part, never one in between."""
    entries = _entries(folder)
    done = []
    for step, digest in inputs.items():
        entry = entries.get(step)
        if entry is None or entry.get("inputs") != digest or not _is_whole(folder / step, entry.get("files")):
            break
        done.append(step)
    return tuple(done)


def discard_finished(folder: Path, inputs: Mapping[str, str]) -> None:
    """Removes the folder of a build that was ended between its last rename and its tidying up."""
    if len(finished_steps(folder, inputs)) == len(inputs):
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def open_work(target: Path) -> Iterator[Work]:
    """Makes the folder, or takes up the one of an interrupted build; it stays when the block ends."""
    folder = work_folder(target)
    check_work(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"cannot make the work folder: {os_error_text(error)}") from error
    try:
        _lock(descriptor, folder)
        work = Work(folder=folder, lock=descriptor)
        if not (folder / JOURNAL).exists():
            work._write({})
        yield work
    finally:
        os.close(descriptor)


def check_work(folder: Path) -> None:
    """Raises TargetExists for a folder of that name that no build has made."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and ((folder / JOURNAL).is_file() or not any(folder.iterdir())):
        return
    raise TargetExists(
        f"{folder} is where the build keeps its steps, and it holds something else (no {JOURNAL})",
        hint="move it away, or choose another --out",
    )


def _lock(descriptor: int, folder: Path) -> None:
    """Inherited by the children, so an orphan of a killed build still keeps others out."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TargetExists(
            f"another build is working in {folder}", hint="wait for it, or choose another --out"
        ) from None
    except OSError:  # a file system without locks
        return


def _entries(folder: Path) -> dict[str, Any]:
    """What the journal holds; one that is torn or of another version counts for nothing."""
    try:
        data = json.loads((folder / JOURNAL).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or data.get("version") != _VERSION or not isinstance(data.get("steps"), dict):
        return {}
    return {name: entry for name, entry in data["steps"].items() if isinstance(entry, dict)}


def _is_whole(result: Path, files: object) -> bool:
    if not isinstance(files, dict) or not files:
        return False
    try:
        return all((result / name).stat().st_size == size for name, size in files.items())
    except OSError:
        return False
