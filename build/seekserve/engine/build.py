"""The `build-engine` job: verify the checkpoint, resolve the plan, hand over to the engine kind's own module."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seekserve.errors import InputError
from seekserve.output import bytes_text, json_text, table
from seekserve.plan.facts import PlanFacts
from seekserve.plan.inputs import Given, Inputs, environment_inputs, merge
from seekserve.plan.plan import Unset
from seekserve.plan.resolve import resolve
from seekserve.settings import Settings
from seekserve_backend.contract.bundle import ENGINE_KINDS

from .outcome import BuildOutcome, BuildWish
from .reference import build_reference, check_runnable
from .source import read_source
from .writer import Progress

__all__ = ["BuildReport", "BuildRequest", "build"]

_AVAILABLE = ("reference",)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What the flags say; None and UNSET fall back to the environment, the settings file, the default."""

    checkpoint: str | None = None
    out: Path | None = None
    inputs: Inputs = field(default_factory=Inputs)
    link_weights: bool = False
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    target: Path
    checkpoint: Path
    facts: PlanFacts
    warnings: tuple[str, ...]
    outcome: BuildOutcome
    link_weights: bool

    def json_text(self) -> str:
        bundle = self.outcome.bundle
        return json_text(
            {
                "status": self.outcome.status,
                "bundle": str(self.target),
                "checkpoint": str(self.checkpoint),
                "name": bundle.name,
                "model": self.facts.title,
                "family": bundle.family,
                "engine": bundle.engine,
                "weights": {"dtype": bundle.weights_dtype, "bytes": bundle.weights_bytes, "linked": self.link_weights},
                "limits": bundle.limits.to_json(),
                "kv_cache": bundle.kv.to_json(),
                "sources": dict(bundle.sources),
                "warnings": list(self.warnings),
                "files": {copy.target: copy.size_bytes for copy in self.outcome.copies},
            }
        )

    def text(self) -> str:
        bundle, status = self.outcome.bundle, self.outcome.status
        limits, kv = bundle.limits, bundle.kv
        kv_size = f"{kv.dtype}, {kv.bytes_per_token} B per token, {bytes_text(kv.capacity_tokens * kv.bytes_per_token)}"
        is_dry = status == "dry-run"
        title = {"dry-run": "would build", "reused": "already built, reused:"}.get(status, status)
        rows = [
            ("model", f"{self.facts.title}, {bundle.weights_dtype} weights of {bytes_text(bundle.weights_bytes)}"),
            ("engine", f"{bundle.engine} ({bundle.engine_version})"),
            ("limits", f"{limits.max_seq_len_tokens} tokens per request, {limits.max_batch_size} requests at once"),
            ("step", f"{limits.max_num_tokens} tokens, prefill in chunks of {limits.prefill_chunk_tokens}"),
            ("KV cache", f"{kv.capacity_tokens} tokens in {kv.capacity_blocks} blocks of {kv.block_tokens}, {kv_size}"),
            (
                "files",
                f"{len(self.outcome.copies)}, {bytes_text(sum(copy.size_bytes for copy in self.outcome.copies))}",
            ),
        ]
        lines = [f"{title} bundle {bundle.name} at {self.target}", *table(rows)]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        if is_dry:
            lines += self._dry_run_lines()
        else:
            lines.append(f"next: seekserve render {shlex.quote(str(self.target))} --out REPO")
        return "\n".join(lines)

    def _dry_run_lines(self) -> list[str]:
        lines = ["would write:"]
        for copy in self.outcome.copies:
            how = "link to" if copy.is_weights and self.link_weights else "copy of"
            lines.append(f"  {copy.target}  {bytes_text(copy.size_bytes)}, {how} {copy.source}")
        lines += ["  bundle.json", "values and where they come from:"]
        return lines + table(sorted(self.outcome.bundle.sources.items()), indent="    ")


def build(
    request: BuildRequest,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    host_memory_bytes: int | None,
    progress: Progress = lambda name, done, total: None,
) -> BuildReport:
    """Builds the bundle, or finds it built already. Raises before anything is written when it cannot be."""
    checkpoint, target = _checkpoint(request, settings), _target(request, settings)
    from_environment, problems = environment_inputs(environ)
    inputs = merge(request.inputs, from_environment, settings.inputs)
    _check_engine(inputs)
    source = read_source(checkpoint)
    check_runnable(source.facts)
    plan = resolve(inputs, source.facts, host_memory_bytes=host_memory_bytes, problems=problems)
    wish = BuildWish(
        target=target,
        link_weights=request.link_weights,
        force=request.force,
        dry_run=request.dry_run,
    )
    return BuildReport(
        target=target,
        checkpoint=source.folder,
        facts=source.facts,
        warnings=source.warnings,
        outcome=build_reference(wish, plan, source.copies, progress=progress),
        link_weights=request.link_weights,
    )


def _checkpoint(request: BuildRequest, settings: Settings) -> str:
    if request.checkpoint is not None:
        return request.checkpoint
    if isinstance(settings.checkpoint, Unset):
        raise InputError("which checkpoint?", hint="give CHECKPOINT, or checkpoint in seekserve.yaml")
    return settings.checkpoint


def _target(request: BuildRequest, settings: Settings) -> Path:
    if request.out is not None:
        return request.out.expanduser().absolute()
    if isinstance(settings.paths.bundle, Unset):
        raise InputError("where to?", hint="give --out BUNDLE, or paths.bundle in seekserve.yaml")
    return settings.paths.bundle


def _check_engine(inputs: Inputs) -> None:
    """A kind that exists but not in this version gets a sentence; a word that is no kind is left to `resolve`."""
    given = inputs.engine
    if isinstance(given, Given) and given.value in ENGINE_KINDS and given.value not in _AVAILABLE:
        raise InputError(
            f"{given.source_text}: this version builds bundles for the engine {', '.join(_AVAILABLE)} only, "
            f"not for {given.value}",
            hint=f"--engine {_AVAILABLE[0]} runs on any machine, without a GPU",
        )
