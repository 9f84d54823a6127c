"""Finds a checkpoint: a local folder, or a hub id (`org/name`, `org/name@revision`) in the local Hugging Face cache.

Never downloads. The one place here that reads the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from seekserve.errors import CheckpointError

__all__ = ["cache_folder", "find_checkpoint"]

HUB_ID: Final = re.compile(r"([A-Za-z0-9][\w.-]{0,95})/([A-Za-z0-9][\w.-]{0,95})(?:@([\w.-]{1,128}))?\Z", re.ASCII)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """HF_HUB_CACHE, else HF_HOME/hub, else the default that huggingface_hub uses."""
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"]).expanduser()
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]).expanduser() / "hub"
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def find_checkpoint(path_or_id: str | Path, environment: Mapping[str, str] | None = None) -> Path:
    """The folder to read. Raises CheckpointError when there is none; a local folder wins over an id."""
    path = Path(path_or_id).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointError(
            f"{path} is a file where a checkpoint folder is needed", hint="name the folder it lies in"
        )
    match = HUB_ID.match(str(path_or_id))
    if match is None:
        raise CheckpointError(
            f"{path_or_id}: no such folder, and not a hub id", hint="give a folder, or org/name of a downloaded model"
        )
    organisation, name, revision = match.groups()
    cache = cache_folder(os.environ if environment is None else environment)
    return _snapshot(cache / f"models--{organisation}--{name}", f"{organisation}/{name}", revision or "main")


def _snapshot(repository: Path, hub_id: str, revision: str) -> Path:
    if not repository.is_dir():
        raise CheckpointError(
            f"{hub_id}: neither a folder nor in the local Hugging Face cache ({repository.parent})",
            hint=f"download it first: huggingface-cli download {hub_id}",
        )
    reference = repository / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    # the commit comes from a file: it may name a folder beside the others, nothing else
    if re.fullmatch(r"[\w-]{1,128}", commit, re.ASCII) and (repository / "snapshots" / commit).is_dir():
        return repository / "snapshots" / commit
    snapshots = repository / "snapshots"
    present = sorted(p.name for p in snapshots.iterdir()) if snapshots.is_dir() else []
    raise CheckpointError(
        f"{hub_id}: revision {revision!r} is not in the cache; present: {', '.join(present) or 'none'}",
        hint=f"name one with {hub_id}@REVISION, or finish the download",
    )
