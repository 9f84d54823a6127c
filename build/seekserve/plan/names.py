"""Model names: one strict pattern, since a name becomes a folder, a URL part and a metric label."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from seekserve.errors import InputError

__all__ = ["MODEL_NAME", "NAME_RULE", "check_model_name", "default_name"]

MODEL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
NAME_RULE: Final = "1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen, beginning with a letter or digit"


def check_model_name(name: str, source: str) -> str:
    """Returns `name`, or raises InputError naming where it came from."""
    if not MODEL_NAME.match(name):
        raise InputError(f"{source}: {name!r} is no model name", hint=f"use {NAME_RULE}")
    return name


def default_name(checkpoint: Path) -> str:
    """The folder's name; in a Hugging Face cache, whose folders are commit hashes, the repository's."""
    path = checkpoint.absolute()
    name = path.name
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        name = path.parent.parent.name.split("--")[-1]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:64]
    return name or "model"
