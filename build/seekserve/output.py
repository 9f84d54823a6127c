"""What every writing command shares: folders and files that appear whole or not at all, and printing.

Content goes into a hidden sibling of its target and is renamed when complete, so a failure, a full disk or Ctrl-C
leaves the disk as it was. A run that was killed leaves that sibling, which carries its process id and a lock, and the
next run removes it. Nothing else that others made is deleted. Whose a target is, callers decide.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from seekserve.errors import InputError, TargetExists

__all__ = [
    "bytes_text",
    "files_in",
    "json_text",
    "new_folder",
    "os_error_text",
    "problems_text",
    "table",
    "write_files",
]

_PARTIAL, _REPLACED = "partial", "replaced"


@contextlib.contextmanager
def new_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yields an empty folder that becomes `target` when the block ends without an exception.

    With `replace`, an existing target is moved aside first and removed after the swap; the caller has made sure that it
    may be. Without it an existing target is TargetExists, also when it appeared while the block ran.
    """
    if not replace and _exists(target):
        raise TargetExists(f"{target} exists already", hint="choose another place, or move it away")
    made: list[Path] = []
    temporary = _sibling(target, _PARTIAL)
    try:
        _make_parents(target.parent, made)
        _remove_leftovers(target)
        temporary.mkdir()
        with _locked(temporary):
            yield temporary
            _swap_in(temporary, target, replace=replace)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise InputError(f"cannot write {target}: {_os_reason(error)}") from error
        raise


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Writes POSIX paths relative to `folder`, UTF-8, making folders as needed."""
    for name, text in files.items():
        path = folder / PurePosixPath(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")


def files_in(folder: Path) -> list[str]:
    """Every file or link below `folder` as a sorted POSIX path; empty folders are left out, links are not followed."""
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        found += [(Path(root) / name).relative_to(folder).as_posix() for name in (*names, *links)]
    return sorted(found)


def json_text(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def bytes_text(size_bytes: int) -> str:
    """Binary units with one decimal, exact below 1 KiB."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def table(rows: Sequence[tuple[str, str]], *, indent: str = "  ") -> list[str]:
    """Two aligned columns."""
    width = max((len(left) for left, _ in rows), default=0)
    return [f"{indent}{left.ljust(width)}  {right}".rstrip() for left, right in rows]


def problems_text(title: str, problems: Sequence[str]) -> str:
    """One sentence when there is one problem, a list when there are more."""
    if len(problems) == 1:
        return f"{title}: {problems[0]}"
    return f"{title}: {len(problems)} problems" + "".join(f"\n  - {problem}" for problem in problems)


def _swap_in(temporary: Path, target: Path, *, replace: bool) -> None:
    if not _exists(target):
        temporary.rename(target)
        return
    if not replace:
        # rename(2) would silently take the place of an empty folder that somebody else has just made.
        raise TargetExists(f"{target} appeared while it was being written", hint="is another run writing to it?")
    aside = _sibling(target, _REPLACED)
    target.rename(aside)
    try:
        temporary.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside)


def _sibling(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.{kind}")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """For as long as this process lives at most; says across containers, too, that the folder is being written."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(target: Path) -> None:
    """What killed runs left beside `target`. What they had moved aside is kept while it is the only copy."""
    mine = re.compile(re.escape(f".{target.name}.") + rf"(\d+)-[0-9a-f]{{8}}\.({_PARTIAL}|{_REPLACED})")
    beside: list[Path] = []
    with contextlib.suppress(OSError):  # a folder that may be written but not listed
        beside = list(target.parent.iterdir())
    for path in beside:
        match = mine.fullmatch(path.name)
        if match is None or _is_running(int(match[1])) or (match[2] == _REPLACED and not _exists(target)):
            continue
        with contextlib.suppress(OSError):  # not ours to remove, or gone meanwhile
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _make_parents(folder: Path, made: list[Path]) -> None:
    missing = []
    while not _exists(folder):
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir()
        made.append(path)


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def os_error_text(error: OSError) -> str:
    """`PATH: reason`"""
    return f"{error.filename}: {error.strerror or error}" if error.filename else str(error.strerror or error)


def _os_reason(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{where}"
