"""The checkpoint as a source of bytes: stored names, byte ranges, and whether the files are still what they were.

Reads with `pread` into the caller's buffer, never through a mapping: a file that is cut off meanwhile is an error and
not a bus fault. Each reader keeps a few files open, whatever the number of shards.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seekserve.checkpoint.headers import TensorEntry, read_header
from seekserve.checkpoint.layout import canonical_name
from seekserve.errors import CheckpointError

__all__ = [
    "OPEN_FILES",
    "FilePrint",
    "SourceReader",
    "StoredTensor",
    "changed_files",
    "digest_of",
    "file_prints",
    "stored_tensors",
]

OPEN_FILES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePrint:
    """What a source file is recognised by; its content is too large to hash for that."""

    size_bytes: int
    modified_ns: int

    def to_json(self) -> list[int]:
        return [self.size_bytes, self.modified_ns]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    name: str
    """As the file spells it; the output keeps this spelling."""
    canonical: str
    entry: TensorEntry


def file_prints(folder: Path, files: Sequence[str]) -> dict[str, FilePrint]:
    return {name: _print_of((folder / name).stat()) for name in files}


def stored_tensors(folder: Path, files: Sequence[str], architecture: str) -> dict[str, list[StoredTensor]]:
    """By file, in file order. The headers were examined before, so a fault here means that the file has changed."""
    out = {}
    for file in files:
        header = read_header(folder / file)
        if not header.is_readable:
            raise CheckpointError(f"{folder / file}: {header.findings[0].message}")
        out[file] = [
            StoredTensor(name=name, canonical=canonical_name(name, architecture), entry=entry)
            for name, entry in sorted(header.tensors.items(), key=lambda item: item[1].begin_bytes)
        ]
    return out


class SourceReader:
    """For one thread."""

    def __init__(self, folder: Path, prints: Mapping[str, FilePrint]) -> None:
        self._folder, self._prints = folder, prints
        self._open: OrderedDict[str, int] = OrderedDict()

    def read_into(self, file: str, offset: int, buffer: memoryview) -> None:
        descriptor = self._descriptor(file)
        done = 0
        while done < len(buffer):
            count = os.preadv(descriptor, [buffer[done:]], offset + done)
            if count == 0:
                raise self._changed(file, f"it ends before byte {offset + len(buffer):,}")
            done += count

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, file: str) -> int:
        descriptor = self._open.get(file)
        if descriptor is not None:
            self._open.move_to_end(file)
            return descriptor
        if len(self._open) >= OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])
        descriptor = os.open(self._folder / file, os.O_RDONLY | os.O_CLOEXEC)
        self._open[file] = descriptor
        if _print_of(os.fstat(descriptor)) != self._prints[file]:
            raise self._changed(file, "its size or time is another")
        return descriptor

    def _changed(self, file: str, how: str) -> CheckpointError:
        return CheckpointError(
            f"{self._folder / file} has changed since this conversion began: {how}",
            hint="is it still being downloaded? start again when it is at rest",
        )


def changed_files(folder: Path, prints: Mapping[str, FilePrint]) -> list[str]:
    """Names of the files that are no longer what `prints` says, or no longer there."""
    out = []
    for name, print_before in prints.items():
        try:
            same = _print_of((folder / name).stat()) == print_before
        except OSError:
            same = False
        if not same:
            out.append(name)
    return out


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _print_of(status: os.stat_result) -> FilePrint:
    return FilePrint(size_bytes=status.st_size, modified_ns=status.st_mtime_ns)
