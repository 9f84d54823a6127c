"""The model's configuration rendered again for the new bundle, in memory: everything else stays as it was chosen.

The policy file is not touched, so its entry in the manifest stays too: an edit of it is still one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.errors import ConflictError, TargetExists
from seekserve.output import json_text
from seekserve.repository.check import check_files, parse_config
from seekserve.repository.model_config import CONFIG_FILE
from seekserve.repository.our_model import STREAMING_PARAMETER
from seekserve.repository.placement import GPU_PARAMETER, place
from seekserve.repository.render import RenderOptions, integrated
from seekserve.repository.write import MANIFEST_FILE
from seekserve.server.models import ServedModel
from seekserve_backend.contract.bundle import Bundle

__all__ = ["NewFiles", "new_files"]

_OURS = frozenset({"bundle_dir", "policy_file", "schema_version", STREAMING_PARAMETER, GPU_PARAMETER})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFiles:
    texts: Mapping[str, str]
    """Name in the model's folder -> text."""
    instances: int
    old_gpus: tuple[tuple[int, ...], ...]
    new_gpus: tuple[tuple[int, ...], ...]


def new_files(model: ServedModel, bundle: Bundle, bundle_dir: Path, *, gpus: Sequence[str], force: bool) -> NewFiles:
    """Raises ConflictError, or TargetExists for a configuration that somebody edited."""
    old_text = (model.folder / CONFIG_FILE).read_text(encoding="utf-8")
    manifest = _manifest(model.folder / MANIFEST_FILE)
    if manifest["files"].get(CONFIG_FILE) != _sha256(old_text) and not force:
        raise TargetExists(
            f"{model.folder / CONFIG_FILE} was edited since it was rendered",
            hint="render it again with the options you want, or let --force drop the edit",
        )
    present = model.parameters.get(GPU_PARAMETER, "")
    lists = tuple(gpus) or (tuple(present.split(";")) if present else ())
    placement = place(bundle, instances=model.instances, gpus=lists)
    config = parse_config(old_text)
    rendering = integrated(
        bundle,
        RenderOptions(
            model_name=model.name,
            bundle_dir=bundle_dir,
            placement=placement,
            is_streaming=config.model_transaction_policy.decoupled,
        ),
        {name: value for name, value in model.parameters.items() if name not in _OURS},
    )
    check_files(rendering.files, rendering.models)
    text = rendering.files[f"{model.name}/{CONFIG_FILE}"]
    manifest["files"][CONFIG_FILE] = _sha256(text)
    return NewFiles(
        texts={CONFIG_FILE: text, MANIFEST_FILE: json_text(manifest) + "\n"},
        instances=model.instances,
        old_gpus=_gpus(present),
        new_gpus=placement.gpus,
    )


def _manifest(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["made_by"] == "seekserve" and isinstance(data["files"], dict):
            return dict(data)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise ConflictError(
        f"{path.parent} was not made by `seekserve render` (no {MANIFEST_FILE} of ours in it)",
        hint="render the new variant into a repository of its own",
    )


def _gpus(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, group.split(","))) for group in text.split(";")) if text else ()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
