"""The main job from checkpoint to a launchable repository, as `serve` and `demo` run it.

Each step is the same call that its own command makes, so what works here works step by step too. Nothing is built
twice: a bundle, repository or backend that is already as it should be is reused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import InputError
from seekserve.plan.inputs import Inputs
from seekserve.plan.plan import Unset
from seekserve.settings import Settings

__all__ = ["Paths", "choose_checkpoint", "default_paths", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where the three artefacts of a deployment go."""

    bundle: Path
    repository: Path
    backends: Path


def choose_checkpoint(given: str | None, settings: Settings) -> str:
    """The command line's checkpoint, else the file's. Raises InputError when neither names one."""
    if given is not None:
        return given
    if isinstance(settings.checkpoint, Unset):
        raise InputError("which checkpoint?", hint="give CHECKPOINT, or checkpoint in seekserve.yaml")
    return settings.checkpoint


def default_paths(checkpoint: str, settings: Settings, *, root: Path) -> Paths:
    """The file's paths where it names them, else folders under `root` named after the checkpoint."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(checkpoint).name or checkpoint).strip("-.") or "deployment"
    given = settings.paths
    return Paths(
        bundle=root / "bundles" / stem if isinstance(given.bundle, Unset) else given.bundle,
        repository=root / "repository" / stem if isinstance(given.repository, Unset) else given.repository,
        backends=root / "backends" if isinstance(given.backends, Unset) else given.backends,
    )


def prepare(
    checkpoint: str,
    paths: Paths,
    settings: Settings,
    inputs: Inputs,
    *,
    policy: Path | None = None,
    say: Callable[[str], None],
) -> None:
    """Build, render, install. Raises what the steps raise; `say` gets each step's own report."""
    import psutil

    from seekserve.engine.build import BuildRequest, build
    from seekserve.repository.installing import InstallRequest, run_install
    from seekserve.repository.publish import RenderRequest, publish

    say(
        build(
            BuildRequest(checkpoint=checkpoint, out=paths.bundle, inputs=inputs),
            settings,
            os.environ,
            host_memory_bytes=psutil.virtual_memory().total,
        ).text()
    )
    say(publish(RenderRequest(bundle=paths.bundle, out=paths.repository, policy=policy), settings).text())
    say(run_install(InstallRequest(backends_dir=paths.backends), settings).text())
