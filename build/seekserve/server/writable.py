"""Whether a launch can write its record and its log, found out before it starts. What is tried is removed at once.

Asking for permissions is not enough (root has them all, /proc takes no files), so a folder is really made and removed,
in the nearest folder that exists.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["write_problem"]


def write_problem(path: Path, setting: str, *, is_renamed_into_place: bool) -> str | None:
    """A sentence when no file can be written at `path`, missing folders made; `setting` is what the user may change."""
    folder = path.parent
    try:
        if path.is_dir():
            return f"{setting} {path} is a folder; name a file in it"
        if path.exists() and not is_renamed_into_place:
            return None if os.access(path, os.W_OK) else f"{setting} {path} may not be written; choose another place"
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        Path(tempfile.mkdtemp(prefix=".seekserve-", dir=folder)).rmdir()
    except OSError as error:
        return f"{setting} {path} cannot be written, {folder} takes no files ({error.strerror}); choose another place"
    return None
