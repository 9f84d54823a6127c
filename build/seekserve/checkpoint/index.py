"""Which safetensors files make up a checkpoint: the index where there is one, else the files that lie there.

File names are matched strictly (no folder, no `..`, nothing absolute). Links are followed for reading, as the Hugging
Face cache consists of them; one that leads out of the checkpoint or its cache repository is pointed out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .config import MAX_JSON_BYTES
from .findings import Collector, Severity, printable

__all__ = ["INDEX_FILE", "SINGLE_FILE", "FileSet", "find_files"]

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"
SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_][\w.+=-]{0,200}\.safetensors\Z", re.ASCII)
PART: Final = re.compile(r"(?P<stem>.*)-(?P<part>\d+)-of-(?P<total>\d+)\.safetensors\Z", re.ASCII)
REBUILD: Final = "rebuild the index from the shards, or download it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    files: tuple[str, ...]
    """Shards to read, sorted; all exist."""
    weight_map: Mapping[str, str] | None
    """Tensor name -> file name as the index says; None without an index."""
    total_bytes: int | None
    """metadata.total_size of the index."""


def find_files(folder: Path, findings: Collector) -> FileSet:
    present = sorted(p.name for p in folder.iterdir() if p.name.endswith(".safetensors") and not p.name.startswith("."))
    weight_map, total = (None, None)
    if (folder / INDEX_FILE).is_file():
        weight_map, total = _read_index(folder / INDEX_FILE, findings)
    if weight_map is None:
        files = _without_index(folder, present, findings)
    else:
        files = _with_index(folder, weight_map, present, findings)
    _check_links(folder, files, findings)
    return FileSet(files=tuple(files), weight_map=weight_map, total_bytes=total)


def _read_index(path: Path, findings: Collector) -> tuple[dict[str, str] | None, int | None]:
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            findings.error(
                "index-unreadable", path.name, f"has {size:,} bytes where at most {MAX_JSON_BYTES:,} are read"
            )
            return None, None
        index = json.loads(path.read_bytes(), object_pairs_hook=_unique)
    except (ValueError, RecursionError, OSError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        findings.error("index-unreadable", path.name, f"is no JSON index: {printable(reason)}; {REBUILD}")
        return None, None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or set(map(type, weight_map.values())) != {str}:
        findings.error("index-unreadable", path.name, f"has no weight_map of names to file names; {REBUILD}")
        return None, None
    unsafe_files = {file for file in set(weight_map.values()) if not SAFE_NAME.match(file)}
    unsafe = [(path.name, f"{name} -> {file}") for name, file in weight_map.items() if file in unsafe_files]
    text = "{n} entries name a file outside the folder or no safetensors file, refused"
    findings.group(Severity.ERROR, "index-name", unsafe, text)
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    kept = {name: file for name, file in weight_map.items() if file not in unsafe_files} if unsafe else weight_map
    return kept, total if type(total) is int else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return out


def _with_index(folder: Path, weight_map: Mapping[str, str], present: list[str], findings: Collector) -> list[str]:
    named = sorted(set(weight_map.values()))
    tensors_of = Counter(weight_map.values())
    there = [name for name in named if (folder / name).is_file()]
    missing = [
        (INDEX_FILE, f"{name} ({tensors_of[name]:,} tensors)") for name in named if not (folder / name).is_file()
    ]
    findings.group(
        Severity.ERROR, "shard-missing", missing, f"{{n}} of {len(named)} shards are not there; download them again"
    )
    _check_totals(named, present, findings)
    unlisted = [(name, name) for name in present if name not in tensors_of]
    parts = [hit for hit in unlisted if PART.match(hit[0])]
    findings.group(
        Severity.ERROR,
        "shard-unlisted",
        parts,
        f"{{n}} shards lie in the folder but the index names none of them; {REBUILD}",
    )
    others = [hit for hit in unlisted if not PART.match(hit[0])]
    findings.group(
        Severity.WARNING, "file-unlisted", others, "{n} safetensors files are not part of the index and not read"
    )
    return there


def _check_totals(named: list[str], present: list[str], findings: Collector) -> None:
    """`-of-00030` in the index while 15 shards of 15 lie there: the index is of another export."""
    matches = [m for m in (PART.match(name) for name in named) if m]
    totals = sorted({int(m["total"]) for m in matches})
    if not totals:
        return
    on_disk = sorted({int(m["total"]) for m in (PART.match(name) for name in present) if m})
    if len(totals) > 1:
        findings.error(
            "index-stale",
            INDEX_FILE,
            f"names shards of different sets (-of-{totals[0]} and -of-{totals[-1]}); {REBUILD}",
        )
    elif on_disk and totals[0] not in on_disk:
        count = sum(1 for name in present if PART.match(name))
        findings.error(
            "index-stale",
            INDEX_FILE,
            f"expects {totals[0]} shards (-of-{totals[0]:05d}), the folder holds {count} of another set "
            f"(-of-{on_disk[0]:05d}); {REBUILD}",
        )
    elif len(matches) != totals[0]:
        findings.error(
            "index-stale",
            INDEX_FILE,
            f"names {len(matches)} shards while their names say -of-{totals[0]:05d}; {REBUILD}",
        )


def _without_index(folder: Path, present: list[str], findings: Collector) -> list[str]:
    if present == [SINGLE_FILE]:
        return present
    if not present:
        others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".gguf", ".ckpt"))
        extra = f"; {len(others)} files of other kinds ({others[0]}, ...) are never read" if others else ""
        findings.error("weights-missing", SINGLE_FILE, f"no safetensors file and no {INDEX_FILE} in the folder{extra}")
        return []
    safe = [name for name in present if SAFE_NAME.match(name)]
    if not (folder / INDEX_FILE).is_file():
        if SINGLE_FILE in present:
            rest = [(name, name) for name in present if name != SINGLE_FILE]
            findings.group(Severity.WARNING, "file-unlisted", rest, f"{{n}} files beside {SINGLE_FILE} are not read")
            return [SINGLE_FILE]
        findings.error(
            "index-missing", INDEX_FILE, f"is not there although the folder holds {len(present)} shards; {REBUILD}"
        )
        _check_parts(safe, findings)
    return safe


def _check_parts(present: list[str], findings: Collector) -> None:
    matches = [m for m in (PART.match(name) for name in present) if m]
    if not matches:
        return
    total = int(matches[0]["total"])
    if total > len(matches):
        findings.error(
            "shard-missing", matches[0].string, f"{len(matches)} of {total} shards are there; download the rest"
        )


def _check_links(folder: Path, files: list[str], findings: Collector) -> None:
    """In the hub's cache a snapshot's files are links into the `blobs` folder two levels up."""
    roots = [folder.resolve()]
    if folder.resolve().parent.name == "snapshots":
        roots.append(folder.resolve().parent.parent / "blobs")
    outside = []
    for name in files:
        path = folder / name
        if path.is_symlink():
            target = path.resolve()
            if not any(target.is_relative_to(root) for root in roots):
                outside.append((name, f"{name} -> {target}"))
    findings.group(Severity.WARNING, "link-outside", outside, "{n} shards are links that lead out of the checkpoint")
