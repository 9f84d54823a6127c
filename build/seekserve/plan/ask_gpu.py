"""A plan for GPUs as a build needs it: every layer of inputs merged, refused with the alternative, sure to fit.

The layers, the earlier one winning: flags, environment, file, preset, this machine, curated profile, curated rules,
what follows from the prefill chunk. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seekserve.errors import ConfigError, ConflictError
from seekserve.plan.curated import situation_of
from seekserve.plan.gpu_resolve import require_fit, resolve_gpu, with_findings
from seekserve.plan.gpus import Gpu, find_gpu
from seekserve.plan.inputs import Given, Inputs, environment_inputs, merge
from seekserve.plan.machine import Machine, read_machine
from seekserve.plan.model import Model, read_model
from seekserve.plan.plan import Plan
from seekserve.plan.presets import preset_values
from seekserve.plan.support import default_engine, support_for
from seekserve.plan.target import ALL_FIELDS, shape_disagreements
from seekserve.trtllm import resolve_version, support

from .gpu_inputs import Aim, chunk_inputs, profile_inputs, rule_inputs, wanted_profile

__all__ = ["GpuRequest", "plan_for_gpus"]

_DEFAULT_VERSION = "1.2.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    flags: Inputs
    file: Inputs
    topology: Path | None = None
    preset: str | None = None
    profile: str | None = None
    quantize: str | None = None
    """Precision that the build makes of plain weights, which the plan must count with."""


def plan_for_gpus(checkpoint: Path, request: GpuRequest, environ: Mapping[str, str]) -> Plan:
    """Raises InputErrors for wrong values, ConflictError and DoesNotFit for what cannot be built."""
    if request.preset is not None and request.profile is not None:
        raise ConfigError(
            f"--preset {request.preset} and --profile {request.profile} are two sets of settings", hint="give one"
        )
    from_environment, problems = environment_inputs(environ, ALL_FIELDS)
    layers = [request.flags, from_environment, request.file]
    problems += shape_disagreements(layers)
    given = _whole_version(merge(*layers, *([preset_values(request.preset)] if request.preset else [])))
    model = read_model(str(checkpoint))
    machine = _machine(request, given, environ)
    if machine is not None:
        given = merge(given, machine.inputs())
    gpu = machine.gpu if machine is not None and machine.is_planned_for(given) else None
    plan = _resolve(given, model, gpu, request, problems)
    if machine is not None:
        plan = with_findings(plan, machine.findings(plan.tp))
    require_fit(plan)
    return _whole_prompts(plan)


def _resolve(given: Inputs, model: Model, gpu: Gpu | None, request: GpuRequest, problems: Sequence[str]) -> Plan:
    aim = _aim(given, model, gpu)
    if request.quantize is not None and aim.engine == "trtllm-engine":
        from .trtllm_engine import model_in

        model = model_in(model, request.quantize)
        aim = replace(aim, model=model)
    profile = wanted_profile(request.profile, aim)
    preset = request.preset or request.profile

    def settle(rules: Inputs) -> Plan:
        lower = merge(given, profile_inputs(profile, aim, given), rules)
        inputs = merge(lower, chunk_inputs(lower, aim))
        return resolve_gpu(inputs, model, gpu=gpu, preset=preset, problems=problems)

    rules = rule_inputs(aim.situation())
    plan = settle(rules)
    assert plan.deployment is not None
    # Some rules ask for the shape, which the plan has just chosen.
    later = rule_inputs(situation_of(plan.deployment.case))
    return plan if later == rules else settle(later)


def _aim(given: Inputs, model: Model, found: Gpu | None) -> Aim:
    """Raises ConflictError with what runs instead when engine kind or version cannot run the model."""
    gpu = found
    if gpu is None:
        if not isinstance(given.gpu, Given):
            raise ConfigError("which GPU?", hint="--gpu h200_sxm, or --gpu auto on the machine that has them")
        gpu = find_gpu(str(given.gpu.value), given.gpu.source_text)
    engine = str(given.engine.value) if isinstance(given.engine, Given) else default_engine(model.family)
    known = support_for(model.family, engine)
    version = known.default_version if known is not None else _DEFAULT_VERSION
    if isinstance(given.trtllm_version, Given):
        version = str(given.trtllm_version.value)
    found_support = support(model.architecture, engine, version)
    if not found_support.ok:
        raise ConflictError(found_support.sentence)
    gpus = given.gpus.value if isinstance(given.gpus, Given) else gpu.node_gpus
    return Aim(model=model, gpu=gpu, gpus=gpus, engine=engine, version=version)


def _whole_version(given: Inputs) -> Inputs:
    """`1.2` as the release that it means. Raises ConfigError for one that nothing is known of."""
    wanted = given.trtllm_version
    if not isinstance(wanted, Given):
        return given
    return replace(given, trtllm_version=replace(wanted, value=resolve_version(str(wanted.value)).version))


def _machine(request: GpuRequest, given: Inputs, environ: Mapping[str, str]) -> Machine | None:
    is_auto = isinstance(given.gpu, Given) and str(given.gpu.value).lower() == "auto"
    if not is_auto and request.topology is None:
        return None
    return read_machine(request.topology, environ, reads_gpus=is_auto)


def _whole_prompts(plan: Plan) -> Plan:
    """Without chunks a prompt is one piece, as large as a step."""
    assert plan.deployment is not None
    if plan.deployment.case.wish.chunked_prefill:
        return plan
    key = "limits.prefill_chunk_tokens"
    return replace(
        plan,
        limits=replace(plan.limits, prefill_chunk_tokens=plan.limits.max_num_tokens),
        sources={**plan.sources, key: "derived: prompts are not cut"},
    )
