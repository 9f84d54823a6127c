"""One archive of named texts: the same parts give the same bytes, and nothing that exists is overwritten."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import secrets
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import InputError, TargetExists
from seekserve.output import bytes_text, json_text

__all__ = ["Part", "listing", "manifest", "write_archive"]

MANIFEST = "MANIFEST.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of the archive, or the reason why it is not there."""

    name: str
    """POSIX path within the archive."""
    text: str | None = None
    note: str = ""
    """What was cut off; for a part without text, why there is none."""

    @property
    def size_bytes(self) -> int:
        return 0 if self.text is None else len(self.text.encode("utf-8", "replace"))


def manifest(parts: Sequence[Part]) -> str:
    """JSON: each part with size and digest, or why it is missing; by name."""
    entries: list[dict[str, object]] = []
    for part in sorted(parts, key=lambda each: each.name):
        entry: dict[str, object] = {"name": part.name}
        if part.text is None:
            entry["missing"] = part.note
        else:
            data = part.text.encode("utf-8", "replace")
            entry |= {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            entry |= {"note": part.note} if part.note else {}
        entries.append(entry)
    return json_text({"schema_version": 1, "parts": entries}) + "\n"


def listing(parts: Sequence[Part]) -> list[str]:
    """One line for each part, what is there first."""
    there = sorted((part for part in parts if part.text is not None), key=lambda each: each.name)
    missing = sorted((part for part in parts if part.text is None), key=lambda each: each.name)
    width = max((len(part.name) for part in parts), default=0)
    lines = [
        f"{part.name:<{width}}  {bytes_text(part.size_bytes):>10}{'  ' + part.note if part.note else ''}"
        for part in there
    ]
    return lines + [f"{part.name:<{width}}  {'missing':>10}  {part.note}" for part in missing]


def write_archive(parts: Sequence[Part], target: Path) -> int:
    """A .tar.gz below one folder of the archive's name, readable by its owner only; its size in bytes.

    Raises TargetExists, and InputError where it cannot be written; then nothing is left behind.
    """
    data = _packed(parts, target.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz"))
    beside = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            _move_in(beside, target)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
    except FileExistsError:
        raise TargetExists(f"{target} exists already", hint="name another with --out, or move it away") from None
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    return len(data)


def _move_in(beside: Path, target: Path) -> None:
    try:
        os.link(beside, target)  # fails where the target exists, also when it appeared a moment ago
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists() or target.is_symlink():
            raise FileExistsError(target) from None
        beside.rename(target)


def _packed(parts: Sequence[Part], folder: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        texts = {part.name: part.text for part in parts if part.text is not None}
        for name, text in sorted({**texts, MANIFEST: manifest(parts)}.items()):
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode = len(data), 0o600
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)
