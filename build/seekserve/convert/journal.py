"""The record of a conversion, one JSON object a line: what it was begun with, then each finished shard with its digest.

A shard counts as finished only when its line is whole and its bytes still have that digest. The record stays in the
output as the proof of what it was made from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from seekserve.errors import ConflictError

from .layout import OutputShard, layout_digest
from .partial import Partial
from .plan import ConversionPlan
from .source import digest_of

__all__ = ["JOURNAL_FILE", "Journal", "append_finished", "file_digest", "shard_digest"]

JOURNAL_FILE: Final = "seekserve_conversion.jsonl"
_VERSION: Final = 1
_CHUNK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    finished: Mapping[str, str]
    """Output file -> digest."""

    @staticmethod
    def begin(partial: Partial, plan: ConversionPlan) -> Journal:
        partial.write(JOURNAL_FILE, _line(_opening(plan)))
        return Journal(finished={})

    @staticmethod
    def resume(partial: Partial, plan: ConversionPlan) -> Journal:
        """Raises ConflictError when what lies there was begun with another source, target or layout."""
        try:
            raw = partial.read(JOURNAL_FILE)
        except FileNotFoundError:
            if partial.names():
                raise ConflictError(
                    f"{partial.path} holds no {JOURNAL_FILE}, so it is no unfinished conversion",
                    hint="move it away, or choose another OUT",
                ) from None
            return Journal.begin(partial, plan)
        whole = raw[: raw.rfind(b"\n") + 1]  # a line that a crash has torn is as if it had not been written
        lines = _parsed(whole)
        _check_same(lines[0] if lines else {}, _opening(plan), partial)
        if whole != raw:
            partial.write(JOURNAL_FILE, whole)
        finished = {str(line.get("file")): str(line.get("digest")) for line in lines[1:]}
        return Journal(finished={s.file: finished[s.file] for s in plan.shards if s.file in finished})


def append_finished(partial: Partial, shard: OutputShard, digest: str) -> None:
    partial.append(JOURNAL_FILE, _line({"file": shard.file, "size_bytes": shard.size_bytes, "digest": digest}))


def shard_digest(shard: OutputShard, checksums: Mapping[str, int]) -> str:
    """SHA-256 over the header and the CRC-32 of each tensor, which are written, and summed up, in any order.

    It guards against accidents, not against an attacker, who could write the record too. SHA-256 over all the bytes
    would nearly double the processor time of a conversion.
    """
    digest = hashlib.sha256(shard.header)
    for piece in shard.pieces:
        digest.update(checksums[piece.name].to_bytes(4, "little"))
    return digest.hexdigest()


def file_digest(descriptor: int, shard: OutputShard, progress: Callable[[int], None]) -> str | None:
    """The digest of a file that shall be this shard; None when size or header show that it is not."""
    if os.fstat(descriptor).st_size != shard.size_bytes:
        return None
    if os.pread(descriptor, len(shard.header), 0) != shard.header:
        return None
    checksums = {}
    for piece in shard.pieces:
        checksum = 0
        position, end = shard.offsets[piece.name], shard.offsets[piece.name] + piece.size_bytes
        while position < end:
            chunk = os.pread(descriptor, min(_CHUNK_BYTES, end - position), position)
            if not chunk:
                return None
            checksum = zlib.crc32(chunk, checksum)
            position += len(chunk)
            progress(len(chunk))
        checksums[piece.name] = checksum
    return shard_digest(shard, checksums)


def _opening(plan: ConversionPlan) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "target": plan.target,
        "config": digest_of(plan.folder / "config.json"),
        "files": {name: print_.to_json() for name, print_ in plan.prints.items()},
        "layout": layout_digest(plan.shards),
    }


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], partial: Partial) -> None:
    words = {
        "version": "the record's version",
        "target": "--to",
        "config": "the checkpoint's config.json",
        "layout": "the layout of the output",
    }
    different = [text for key, text in words.items() if before.get(key) != now[key]]
    files_before = before.get("files")
    held = files_before if isinstance(files_before, dict) else {}
    changed = sorted(name for name in {*held, *now["files"]} if held.get(name) != now["files"].get(name))
    if changed:
        different.append(f"{len(changed)} source files ({', '.join(changed[:3])})")
    if different:
        raise ConflictError(
            f"{partial.path} was begun from something else; changed since: {'; '.join(different)}",
            hint="remove that folder and start anew, or restore the source",
        )


def _parsed(content: bytes) -> list[Mapping[str, Any]]:
    lines: list[Mapping[str, Any]] = []
    for text in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(text)
            if isinstance(value, dict):
                lines.append(value)
    return lines


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode() + b"\n"
