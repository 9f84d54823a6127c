"""The folder `OUT.partial` that a conversion grows in, and its change into OUT when it is whole.

Everything goes through the folder's own descriptor and never follows a link. A lock keeps a second run out. Files
appear under their names only when complete and on disk; what this run did not make is not deleted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from seekserve.errors import ConflictError, TargetExists

__all__ = ["Partial", "check_target", "partial_of"]

_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def partial_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def check_target(out: Path, checkpoint: Path, *, resume: bool) -> None:
    """Raises TargetExists or ConflictError; makes nothing."""
    partial = partial_of(out)
    for path in (out, partial):
        if path.is_symlink():
            raise ConflictError(f"{path} is a link; nothing is written through links", hint="name the real folder")
    if out.exists():
        raise TargetExists(f"{out} exists already", hint="choose another place, or move it away")
    if not out.parent.is_dir():
        raise ConflictError(f"{out.parent} is no folder, so {out.name} cannot be made in it", hint="make it first")
    if out.parent.resolve().is_relative_to(checkpoint.resolve()):
        raise ConflictError(f"{out} lies inside the checkpoint {checkpoint}", hint="choose a place outside of it")
    if partial.exists() and not resume:
        raise TargetExists(
            f"{partial} is left from a conversion that did not finish",
            hint="continue it with --resume, or remove that folder",
        )


class Partial:
    """Opened (and made, unless it is there) on entry; the lock is held until exit."""

    def __init__(self, out: Path) -> None:
        self._out, self.path = out, partial_of(out)
        self.is_new = False
        self._folder = -1

    def __enter__(self) -> Partial:
        with contextlib.suppress(FileExistsError):
            self.path.mkdir()
            self.is_new = True
        self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._folder)
            raise ConflictError(
                f"{self.path} is being written by another run", hint="wait for it, or choose another OUT"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._folder)

    @contextlib.contextmanager
    def new_file(self, name: str, size_bytes: int) -> Iterator[int]:
        """Descriptor of a hidden file of that size; whoever fails leaves it for the next run to remove."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_hidden(name), dir_fd=self._folder)
        descriptor = os.open(_hidden(name), _NEW, 0o644, dir_fd=self._folder)
        try:
            if size_bytes:
                _reserve(descriptor, size_bytes)
            yield descriptor
        finally:
            os.close(descriptor)

    def publish(self, name: str) -> None:
        """After the data is on disk: from here on the file has its name. A name that a power cut loses is made anew."""
        os.rename(_hidden(name), name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def write(self, name: str, content: bytes) -> None:
        with self.new_file(name, 0) as descriptor:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        self.publish(name)

    def append(self, name: str, content: bytes) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o644, dir_fd=self._folder)
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open(self, name: str) -> int:
        """For reading. Raises ConflictError for anything but a regular file."""
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ConflictError(f"{self.path / name} is not a regular file", hint="remove it, then use --resume")
        return descriptor

    def read(self, name: str) -> bytes:
        with os.fdopen(self.open(name), "rb") as file:
            return file.read()

    def names(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return sorted(entry.name for entry in entries)

    def remove(self, names: Iterable[str]) -> None:
        """Those that exist, hidden or not, and then the folder itself if nothing else is in it."""
        for name in names:
            for each in (name, _hidden(name)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(each, dir_fd=self._folder)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def complete(self, names: Iterable[str]) -> None:
        """The rename that makes OUT appear; the folder must hold exactly `names`."""
        wanted = set(names)
        for name in wanted:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_hidden(name), dir_fd=self._folder)
        foreign = [name for name in self.names() if name not in wanted]
        if foreign:
            raise ConflictError(
                f"{self.path} holds files that no conversion made: {', '.join(foreign[:5])}",
                hint="move them away, then use --resume",
            )
        if self._out.exists() or self._out.is_symlink():
            # rename(2) would silently take the place of an empty folder that somebody else has just made
            raise TargetExists(f"{self._out} appeared meanwhile", hint="move it away, then use --resume")
        os.fsync(self._folder)
        self.path.rename(self._out)
        _sync_folder(self._out.parent)


def _hidden(name: str) -> str:
    return f".{name}.unfinished"


def _reserve(descriptor: int, size_bytes: int) -> None:
    """A full disk shows now and not after an hour; file systems without reservation get a sparse file."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        os.ftruncate(descriptor, size_bytes)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
