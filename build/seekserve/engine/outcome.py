"""What a build is asked for and what it answers, the same for every engine kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seekserve_backend.contract.bundle import Bundle, Retention

from .files import FileCopy

__all__ = ["BuildOutcome", "BuildStep", "BuildWish", "TrtllmWish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmWish:
    """What only builds for TensorRT-LLM are asked; nothing given means the curated settings."""

    args: Mapping[str, Any] = field(default_factory=dict)
    """The user's own LLM arguments, nested, from `--extra-args` and `--set` (which wins); not validated yet."""
    args_sources: Mapping[str, str] = field(default_factory=dict)
    """Dotted path of each of them -> where it was given."""
    build_flags: Mapping[str, str] = field(default_factory=dict)
    """Flags for trtllm-build from `--build-flag NAME=VALUE`, names without dashes in front."""
    retention: Retention | None = None
    max_beam_width: int | None = None
    """Most beams of one request; None: as the engine has it, one."""
    examples_dir: Path | None = None
    """TensorRT-LLM's own `examples` folder, which holds convert_checkpoint.py and quantize.py."""
    calibration_data: str | None = None
    """Data set for quantisation: a local folder, or a name of the Hugging Face hub."""
    workers: int | None = None
    profile: str | None = None
    """throughput or latency, where the curated settings know both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildWish:
    target: Path
    link_weights: bool
    force: bool
    dry_run: bool
    trtllm: TrtllmWish = field(default_factory=TrtllmWish)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStep:
    """One child process of a build."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """On top of the caller's environment."""
    status: str = "to do"
    """to do, done, or reused (an interrupted build had finished it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOutcome:
    bundle: Bundle
    status: str
    """built, replaced, reused or dry-run."""
    copies: tuple[FileCopy, ...]
    steps: tuple[BuildStep, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """Files that the build writes itself: POSIX path relative to the bundle -> content."""
    needs: tuple[str, ...] = ()
    """Disk, memory and time, one sentence each, known before anything starts."""
    warnings: tuple[str, ...] = ()
