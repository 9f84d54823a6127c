"""Replacing the configuration of one model in the repository, with the way back.

Each file takes its place whole. The configuration comes last: until then a server that is restarted loads the old
bundle, afterwards the new one; there is no state in between.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from seekserve.server.orders import SWAP_FILES

__all__ = ["ModelFiles"]


class ModelFiles:
    """Remembers the texts that were there when it was made."""

    def __init__(self, folder: Path, new: Mapping[str, str]) -> None:
        assert set(new) <= set(SWAP_FILES)
        self._folder = folder
        self._new = dict(new)
        self._old = {name: _read(folder / name) for name in new}

    def put_new(self) -> None:
        self._put(self._new)

    def put_old(self) -> None:
        self._put(self._old)

    def _put(self, texts: Mapping[str, str | None]) -> None:
        for name in reversed(SWAP_FILES):
            if name not in texts:
                continue
            path, text = self._folder / name, texts[name]
            if text is None:
                path.unlink(missing_ok=True)
                continue
            temporary = path.with_name(f".{name}.{os.getpid()}")
            try:
                temporary.write_text(text, encoding="utf-8", newline="")
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
