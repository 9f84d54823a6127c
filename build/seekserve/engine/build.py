"""The `build-engine` job: verify the checkpoint, resolve the plan, hand over to the engine kind's own module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from seekserve.errors import ConfigError, InputError
from seekserve.plan.ask_gpu import GpuRequest, plan_for_gpus
from seekserve.plan.gpu_resolve import require_fit
from seekserve.plan.inputs import Given, Inputs, environment_inputs, merge
from seekserve.plan.model import model_of
from seekserve.plan.names import MODEL_NAME, NAME_RULE
from seekserve.plan.plan import Plan, Unset
from seekserve.plan.resolve import DEFAULTS, resolve
from seekserve.plan.target import ALL_FIELDS, TARGET_FIELDS
from seekserve.settings import Settings
from seekserve_backend.contract.bundle import ENGINE_KINDS, TRTLLM_KINDS

from .outcome import BuildOutcome, BuildWish
from .reference import build_reference, check_runnable
from .report import BuildReport
from .source import Source, read_source
from .trtllm_flags import TrtllmFlags
from .trtllm_pytorch import build_trtllm_pytorch
from .writer import Progress

__all__ = ["BuildReport", "BuildRequest", "build"]

_AVAILABLE: Final = ("reference", *TRTLLM_KINDS)
_GPU_DEFAULT: Final = "of the family"
"""Somebody named a GPU and no engine kind: the plan takes the one that runs the family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What the flags say; None and UNSET fall back to the environment, the settings file, the default."""

    checkpoint: str | None = None
    out: Path | None = None
    inputs: Inputs = field(default_factory=Inputs)
    link_weights: bool | None = None
    """None: linked where the engine reads them as released from disk once, `trtllm-pytorch`; otherwise copied."""
    variant: str | None = None
    """Put behind the bundle's name and its default folder, so that a second precision lives beside the first."""
    trtllm: TrtllmFlags = field(default_factory=TrtllmFlags)
    force: bool = False
    dry_run: bool = False


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
    engine = _engine(request, settings, environ)
    if engine not in (*TRTLLM_KINDS, _GPU_DEFAULT):
        request.trtllm.refuse_unused(engine, _gpu_flags(request, environ))
    source = read_source(checkpoint)
    if engine in (*TRTLLM_KINDS, _GPU_DEFAULT):
        plan = plan_for_gpus(model_of(source.checkpoint), _gpu_request(request, settings), environ).plan
        request.trtllm.refuse_unused(plan.engine)
        require_fit(plan)
    else:
        plan = _reference_plan(request, settings, environ, source, host_memory_bytes)
    plan = _varied(plan, request.variant)
    link_weights = plan.engine == "trtllm-pytorch" if request.link_weights is None else request.link_weights
    wish = BuildWish(target=target, link_weights=link_weights, force=request.force, dry_run=request.dry_run)
    return BuildReport(
        target=target,
        checkpoint=source.folder,
        facts=source.facts,
        warnings=source.warnings,
        outcome=_handed_over(request, wish, plan, source, environ, progress),
        link_weights=link_weights,
    )


def _handed_over(
    request: BuildRequest,
    wish: BuildWish,
    plan: Plan,
    source: Source,
    environ: Mapping[str, str],
    progress: Progress,
) -> BuildOutcome:
    if plan.deployment is None:
        return build_reference(wish, plan, source.copies, progress=progress)
    wish = replace(wish, trtllm=request.trtllm.wish(plan.engine, plan.deployment.target.version))
    if plan.engine == "trtllm-pytorch":
        return build_trtllm_pytorch(wish, plan, source, progress=progress)
    from .trtllm_engine import Host, build_trtllm_engine

    return build_trtllm_engine(wish, plan, source, progress=progress, host=Host(environ=environ))


def _reference_plan(
    request: BuildRequest,
    settings: Settings,
    environ: Mapping[str, str],
    source: Source,
    host_memory_bytes: int | None,
) -> Plan:
    check_runnable(source.facts)
    from_environment, problems = environment_inputs(environ)
    inputs = merge(request.inputs, from_environment, settings.inputs)
    return resolve(inputs, source.facts, host_memory_bytes=host_memory_bytes, problems=problems)


def _gpu_request(request: BuildRequest, settings: Settings) -> GpuRequest:
    flags = request.trtllm
    return GpuRequest(
        flags=request.inputs,
        file=settings.inputs,
        topology=flags.topology,
        preset=flags.preset,
        profile=flags.profile,
        quantize=flags.quantize,
    )


def _engine(request: BuildRequest, settings: Settings, environ: Mapping[str, str]) -> str:
    """The kind asked for; without one the reference engine, unless somebody names a GPU."""
    from_environment, _ = environment_inputs(environ, ALL_FIELDS)
    inputs = merge(request.inputs, from_environment, settings.inputs)
    given = inputs.engine
    if not isinstance(given, Given):
        return _GPU_DEFAULT if isinstance(inputs.gpu, Given) else DEFAULTS.engine
    if given.value in ENGINE_KINDS and given.value not in _AVAILABLE:
        raise InputError(
            f"{given.source_text}: bundles are built for the engines {', '.join(_AVAILABLE)}, not for {given.value}",
            hint=f"--engine {_AVAILABLE[0]} runs on any machine, without a GPU",
        )
    # A word that is no kind is left to the resolver, which knows the nearest one.
    return str(given.value)


def _gpu_flags(request: BuildRequest, environ: Mapping[str, str]) -> list[str]:
    """A file may describe a deployment on GPUs too; a flag or variable was meant for this build."""
    from_environment, _ = environment_inputs(environ, ALL_FIELDS)
    given = merge(request.inputs, from_environment)
    values = [getattr(given, spec.name) for spec in TARGET_FIELDS]
    return [value.source_text for value in values if isinstance(value, Given)]


def _varied(plan: Plan, variant: str | None) -> Plan:
    if variant is None:
        return plan
    name = f"{plan.name}-{variant}"
    if not variant or not MODEL_NAME.match(name):
        raise ConfigError(f"--variant {variant!r}: {name!r} is no model name: use {NAME_RULE}")
    return replace(plan, name=name, sources={**plan.sources, "name": f"{plan.sources['name']}, --variant {variant}"})


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
    folder = settings.paths.bundle
    return folder if request.variant is None else folder.with_name(f"{folder.name}-{request.variant}")
