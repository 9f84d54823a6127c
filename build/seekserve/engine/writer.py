"""Writes a bundle: every file copied (or linked) and hashed in one pass, bundle.json last, renamed when complete.

Linked weights of an engine on GPUs are hashed over their header alone: nobody waits for 700 GB to be read twice.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seekserve.errors import CheckpointError, DoesNotFit
from seekserve.output import bytes_text, new_folder, write_files
from seekserve.plan.bundle import header_sha256_of, sha256_of
from seekserve_backend.contract.bundle import BUNDLE_FILE, TRTLLM_KINDS, Bundle, BundleFile

from .files import FileCopy

__all__ = ["Progress", "check_disk_space", "text_file", "write_bundle"]

Progress = Callable[[str, int, int], None]
"""Called after each file with its name, the bytes done and the bytes in all."""

_CHUNK_BYTES = 4 * 1024 * 1024
_RESERVE_BYTES = 16 * 1024 * 1024


def check_disk_space(target: Path, copies: Sequence[FileCopy], *, link_weights: bool) -> None:
    """Raises DoesNotFit with both numbers before anything is written."""
    needed = _RESERVE_BYTES + sum(copy.size_bytes for copy in copies if not (copy.is_weights and link_weights))
    folder = target.parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DoesNotFit(
            f"the bundle needs {bytes_text(needed)}, {folder} has {bytes_text(free)} free",
            hint="free some space, choose another --out, or keep the weights where they are with --weights link",
        )


def write_bundle(
    target: Path,
    bundle: Bundle,
    copies: Sequence[FileCopy],
    *,
    link_weights: bool,
    replace_target: bool,
    progress: Progress,
    texts: Mapping[str, str] | None = None,
) -> Bundle:
    """Returns `bundle` with the files as they were written. `texts` are files that the build makes itself."""
    total = sum(copy.size_bytes for copy in copies)
    done = 0
    files = {name: text_file(text) for name, text in (texts or {}).items()}
    with new_folder(target, replace=replace_target) as folder:
        write_files(folder, texts or {})
        for copy in copies:
            place = folder / copy.target
            place.parent.mkdir(parents=True, exist_ok=True)
            is_link = copy.is_weights and link_weights
            files[copy.target] = _link(copy, place, bundle.engine) if is_link else _copy(copy, place)
            done += copy.size_bytes
            progress(copy.target, done, total)
        complete = replace(bundle, files=files)
        (folder / BUNDLE_FILE).write_text(complete.to_json(), encoding="utf-8")
    return complete


def text_file(text: str) -> BundleFile:
    data = text.encode()
    return BundleFile(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def _copy(copy: FileCopy, place: Path) -> BundleFile:
    digest = hashlib.sha256()
    size = 0
    with copy.source.open("rb") as source, place.open("xb") as target:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
            size += len(chunk)
    return _written(copy, size, digest.hexdigest())


def _link(copy: FileCopy, place: Path, engine: str) -> BundleFile:
    place.symlink_to(copy.source)
    size_bytes = place.stat().st_size
    if engine in TRTLLM_KINDS:
        return replace(_written(copy, size_bytes, header_sha256_of(place)), is_header_hash=True)
    return _written(copy, size_bytes, sha256_of(place))


def _written(copy: FileCopy, size_bytes: int, digest: str) -> BundleFile:
    if size_bytes != copy.size_bytes:
        raise CheckpointError(
            f"{copy.source} changed while it was read: {copy.size_bytes} bytes at first, {size_bytes} at the end",
            hint="is it still being downloaded? wait, then build again",
        )
    return BundleFile(size_bytes=size_bytes, sha256=digest)
