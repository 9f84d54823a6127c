"""Which models a rendered repository holds, read through Triton's own configuration schema.

Names are matched against a strict pattern and must stay inside the repository, symlinks included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["OUR_BACKEND", "ServedModel", "all_behind_ours", "read_models"]

OUR_BACKEND = "seekserve"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,126}[A-Za-z0-9_]|[A-Za-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    name: str
    backend: str
    folder: Path
    bundle_dir: Path | None
    policy_file: Path | None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Those of config.pbtxt."""
    instances: int = 1
    """Of all instance groups together."""

    @property
    def is_ours(self) -> bool:
        """Ours answer a generation probe and write heartbeats; others are only asked whether they are ready."""
        return self.backend == OUR_BACKEND


def all_behind_ours(models: Sequence[ServedModel]) -> bool:
    """Whether every model is ours, or a stock one that only a model of ours in front of it is meant to call."""
    called = {model.parameters.get("stock_model") for model in models if model.is_ours}
    return all(model.is_ours or model.name in called for model in models)


def read_models(repository: Path, *, only: Sequence[str] | None = None) -> tuple[tuple[ServedModel, ...], list[str]]:
    """The models in name order, and a sentence for everything that would stop one from loading.

    `only`: the names that are asked for, each of which must be there; what else the repository holds is not looked at.
    """
    if not repository.is_dir():
        return (), [
            f"repository {repository} is not a folder; make one with `seekserve render BUNDLE --out {repository}`"
        ]
    models: list[ServedModel] = []
    found = [folder for folder in sorted(repository.iterdir()) if (folder / "config.pbtxt").is_file()]
    if only is not None:
        found = [folder for folder in found if folder.name in only]
    missing = sorted(set(only or ()) - {folder.name for folder in found})
    problems = [f"repository {repository} holds no model {name!r}" for name in missing]
    for folder in found:
        try:
            model = _read_model(repository, folder)
        except ValueError as error:
            problems.append(f"model {folder.name!r} in {repository}: {error}")
            continue
        models.append(model)
        problems += [f"model {model.name!r}: {problem}" for problem in _missing_parts(folder, model)]
    if not models and not problems:
        problems.append(
            f"repository {repository} holds no model (no MODEL/config.pbtxt); make one with `seekserve render`"
        )
    return tuple(models), problems


def _read_model(repository: Path, folder: Path) -> ServedModel:
    if not _NAME.fullmatch(folder.name):
        raise ValueError("a model name holds letters, digits, '_', '-' and '.', and starts with a letter or digit")
    if repository.resolve() not in folder.resolve().parents:
        raise ValueError(f"leads out of the repository, to {folder.resolve()}")
    config = _parse(folder / "config.pbtxt")
    if config.name not in ("", folder.name):
        raise ValueError(f"config.pbtxt says name {config.name!r}, the folder is {folder.name!r}")
    if not config.backend:
        whole = "; launch starts models that have one, no ensembles" if config.platform else ""
        raise ValueError(f"config.pbtxt names no backend{whole}")
    return ServedModel(
        name=folder.name,
        backend=config.backend,
        folder=folder,
        bundle_dir=_path(folder, config, "bundle_dir"),
        policy_file=_path(folder, config, "policy_file"),
        parameters={key: value.string_value for key, value in config.parameters.items()},
        instances=sum(group.count or 1 for group in config.instance_group) or 1,
    )


def _parse(path: Path) -> Any:
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"config.pbtxt does not parse: {error}") from error


def _path(folder: Path, config: Any, parameter: str) -> Path | None:
    if parameter not in config.parameters:
        return None
    value = config.parameters[parameter].string_value
    return folder / value if value else None


def _missing_parts(folder: Path, model: ServedModel) -> list[str]:
    problems = []
    if not any(child.is_dir() and child.name.isdecimal() for child in folder.iterdir()):
        problems.append(f"{folder} has no version folder; make {folder / '1'}")
    if not model.is_ours:
        return problems + [
            f"{file.parent / 'model.py'} is missing beside {file.name}; copy it from the image that will serve"
            for file in sorted(folder.glob("[0-9]*/model.yaml"))
            if model.backend == "python" and not file.with_name("model.py").is_file()
        ]
    if model.bundle_dir is None:
        problems.append("config.pbtxt has no parameter bundle_dir; render the repository again")
    elif not (model.bundle_dir / "bundle.json").is_file():
        problems.append(f"bundle_dir {model.bundle_dir} holds no bundle.json; build the bundle or render again")
    if model.policy_file is not None and not model.policy_file.is_file():
        problems.append(f"policy_file {model.policy_file} does not exist; render the repository again")
    return problems
