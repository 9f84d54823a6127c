"""The main job from checkpoint to a launchable repository, as `serve` and `demo` run it.

Each step is the same call that its own command makes, so what works here works step by step too. Nothing is built
twice: a bundle, repository or backend that is already as it should be is reused. Each deployment (a checkpoint with its
choices) has folders of its own unless the file names them, so two deployments never stand in each other's way.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from seekserve.errors import InputError, TargetExists
from seekserve.plan.inputs import Given, Inputs, environment_inputs, merge
from seekserve.plan.plan import Unset
from seekserve.settings import Settings
from seekserve_backend.contract.bundle import BUNDLE_SCHEMA

__all__ = ["Paths", "choose_checkpoint", "default_paths", "deployment_folder", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where the three artefacts of a deployment go."""

    bundle: Path
    repository: Path
    backends: Path
    bundle_is_ours: bool
    """Named by this toolkit: when its checkpoint changes, it is built again."""


def choose_checkpoint(given: str | None, settings: Settings) -> str:
    """The command line's checkpoint, else the file's. Raises InputError when neither names one."""
    if given is not None:
        return given
    if isinstance(settings.checkpoint, Unset):
        raise InputError("which checkpoint?", hint="give CHECKPOINT, or checkpoint in seekserve.yaml")
    return settings.checkpoint


def default_paths(
    checkpoint: str, settings: Settings, inputs: Inputs, environ: Mapping[str, str], *, root: Path
) -> Paths:
    """The file's paths where it names them, else folders under `root` of this deployment alone."""
    folder = deployment_folder(checkpoint, merge(inputs, environment_inputs(environ)[0], settings.inputs))
    given = settings.paths
    return Paths(
        bundle=root / "bundles" / folder if isinstance(given.bundle, Unset) else given.bundle,
        repository=root / "repository" / folder if isinstance(given.repository, Unset) else given.repository,
        backends=root / "backends" if isinstance(given.backends, Unset) else given.backends,
        bundle_is_ours=isinstance(given.bundle, Unset),
    )


def deployment_folder(checkpoint: str, inputs: Inputs) -> str:
    """The checkpoint's name for people, and a hash of all that makes another bundle: where it lies, every choice."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(checkpoint).name or checkpoint).strip("-.") or "deployment"
    place = Path(checkpoint).expanduser()
    values = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    choices = {name: given.value for name, given in values.items() if isinstance(given, Given)}
    identity = [BUNDLE_SCHEMA, str(place.resolve()) if place.exists() else checkpoint, choices]
    return f"{stem}-{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]}"


def prepare(
    checkpoint: str,
    paths: Paths,
    settings: Settings,
    inputs: Inputs,
    *,
    policy: Path | None = None,
    say: Callable[[str], None],
) -> str:
    """Build, render, install; the name of the rendered model. Raises what the steps raise; `say` gets their reports."""
    from seekserve.repository.installing import InstallRequest, run_install
    from seekserve.repository.publish import RenderRequest, publish

    try:
        _build(checkpoint, paths, settings, inputs, say=say)
        rendered = publish(RenderRequest(bundle=paths.bundle, out=paths.repository, policy=policy), settings)
        say(rendered.text())
        say(run_install(InstallRequest(backends_dir=paths.backends), settings).text())
    except TargetExists as error:
        # The steps' own hints name flags that only their commands have.
        raise TargetExists(
            error.message, hint="move that folder away, or choose others: --dir, or paths in the file"
        ) from error
    return rendered.model_name


def _build(checkpoint: str, paths: Paths, settings: Settings, inputs: Inputs, *, say: Callable[[str], None]) -> None:
    import psutil

    from seekserve.engine.build import BuildRequest, build

    request = BuildRequest(checkpoint=checkpoint, out=paths.bundle, inputs=inputs)
    memory_bytes = psutil.virtual_memory().total
    try:
        report = build(request, settings, os.environ, host_memory_bytes=memory_bytes)
    except TargetExists as error:
        if not paths.bundle_is_ours:
            raise
        say(f"{error.message}\nbuilding it again")
        report = build(replace(request, force=True), settings, os.environ, host_memory_bytes=memory_bytes)
    say(report.text())
