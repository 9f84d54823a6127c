"""The two steps of a build as data: where each is run from, its exact arguments, and the digest of what it is made of.

Composed and checked as a whole before the first starts, so a mistake in the second costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.output import json_text

from ..outcome import BuildStep
from .digest import source_digest, step_digest
from .flags import BUILD_TOOL, argv_of, build_flags, checked, refuse_heads
from .job import Job
from .recipe import Recipe
from .tools import Tools
from .work import work_folder

__all__ = ["BUILD_STEP", "Steps", "compose_steps"]

BUILD_STEP = "build"
_ENV: Mapping[str, str] = {"PYTHONUNBUFFERED": "1"}
"""So that the log of a child that was killed holds what it last said."""
_PLACES = ("model_dir", "checkpoint_dir", "output_dir", "output_timing_cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    steps: tuple[BuildStep, ...]
    digests: Mapping[str, str]
    """By name, in order."""
    flags: Mapping[str, Mapping[str, object]]
    warnings: tuple[str, ...]

    def record(self, job: Job) -> str:
        """Text of build.json: how the engine was made, without the paths of this machine."""
        data: dict[str, Any] = {
            "trtllm_version": job.version.version,
            "gpu": job.plan.gpu,
            "sm": job.sm,
            "steps": [
                {
                    "name": step.name,
                    "flags": {k: v for k, v in self.flags[step.name].items() if k not in _PLACES},
                    "inputs": self.digests[step.name],
                }
                for step in self.steps
            ],
        }
        return json_text(data) + "\n"


def compose_steps(job: Job, recipe: Recipe, tools: Tools, environ: Mapping[str, str]) -> Steps:
    """Raises ConflictError for what the tools would refuse, or switch off without a word."""
    work = work_folder(job.wish.target)
    first = {
        "model_dir": str(job.source.folder),
        "output_dir": str(work / f"{recipe.name}.partial"),
        **recipe.flags,
    }
    second = build_flags(job, str(work / recipe.name), str(work / f"{BUILD_STEP}.partial"), str(work / "timing.cache"))
    child = {**environ, **_ENV}
    warnings = [*checked(job, recipe.tool, first, child), *checked(job, BUILD_TOOL, second, child)]
    refuse_heads(second)
    steps = (
        BuildStep(name=recipe.name, argv=(tools.python, str(tools.script), *argv_of(first)), env=_ENV),
        BuildStep(name=BUILD_STEP, argv=(tools.build, *argv_of(second)), env=_ENV),
    )
    digests: dict[str, str] = {}
    before = source_digest(job.source)
    places: dict[Path, str] = {work: "work", job.source.folder: "checkpoint"}
    # Where the tools are installed decides nothing; which flags they are given does.
    for step, flags in zip(steps, (first, second), strict=True):
        before = step_digest(before, argv_of(flags), step.env, job.version.version, places=places)
        digests[step.name] = before
    return Steps(
        steps=steps,
        digests=digests,
        flags={recipe.name: first, BUILD_STEP: second},
        warnings=tuple(dict.fromkeys(warnings)),
    )
