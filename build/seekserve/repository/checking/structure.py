"""What stands in the repository's folder, and what Triton would make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..render import CONFIG_FILE
from .finding import RepositoryFinding, error, warning

__all__ = ["model_folders", "structure_findings"]

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9_])?")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
_ENGINE = ("rank0.engine", "rank0.safetensors")


def model_folders(repository: Path) -> list[Path]:
    return [child for child in _children(repository) if (child / CONFIG_FILE).is_file()]


def structure_findings(repository: Path) -> Iterator[RepositoryFinding]:
    folders = _children(repository)
    if not model_folders(repository):
        yield error(
            "no-model", ".", None, f"holds no model (no MODEL/{CONFIG_FILE})", "make one with `seekserve render`"
        )
    for folder in folders:
        yield from _folder_findings(repository, folder)


def _children(repository: Path) -> list[Path]:
    """Hidden folders are no models for Triton."""
    return sorted(child for child in repository.iterdir() if child.is_dir() and not child.name.startswith("."))


def _folder_findings(repository: Path, folder: Path) -> Iterator[RepositoryFinding]:
    name = folder.name
    if not _NAME.fullmatch(name):
        message = f"the folder name {name!r} is no safe model name"
        yield error("model-name", name, None, message, "letters, digits, '_', '-' and '.', a letter or digit first")
    if repository.resolve() not in folder.resolve().parents:
        yield error("outside", name, None, f"leads out of the repository, to {folder.resolve()}")
    if not (folder / CONFIG_FILE).is_file():
        what = _what_it_is(folder)
        hint = "move it beside the repository, and point to it from there"
        message = f"has no {CONFIG_FILE}: {what}, and Triton takes it for a broken model"
        yield error("no-config", name, None, message, hint)
        return
    versions = [child for child in folder.iterdir() if child.is_dir() and child.name.isdecimal()]
    if not versions:
        yield error("no-version", name, None, "has no numbered version folder", f"make {name}/1, empty if need be")
    for child in sorted(folder.iterdir()):
        if child.is_dir() and child.name.startswith("0") and child.name.isdecimal():
            message = f"version folder {child.name!r} starts with a zero, which Triton passes over"
            yield warning("version-name", f"{name}/{child.name}", None, message)


def _what_it_is(folder: Path) -> str:
    names = {child.name for child in folder.iterdir()}
    if names & {"bundle.json"}:
        return "it is a bundle"
    if names & {*_ENGINE}:
        return "it is an engine folder"
    if names & {*_TOKENIZER}:
        return "it is a tokenizer folder"
    return "it is something else"
