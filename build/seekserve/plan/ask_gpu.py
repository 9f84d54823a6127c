"""One plan for GPUs from all layers of inputs; `plan` and `build-engine` both ask here, so their limits are the same.

The layers, the earlier one winning: flags, environment, file, preset, this machine, the guides' profile, the guides'
rules, what follows from other values, defaults. A plan that cannot work is an answer; only values that are wrong in
themselves raise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seekserve.errors import ConfigError
from seekserve.trtllm import resolve_version

from .curated import Profile, situation_of
from .gpu_resolve import resolve_gpu, with_findings
from .gpus import Gpu, find_gpu
from .inputs import Given, Inputs, environment_inputs, merge
from .layers import Aim, preset_layer, profile_layer, rules_layer, wanted_profile
from .machine import Machine, read_machine
from .model import Model
from .plan import UNSET, Plan
from .quantised import model_in
from .support import default_engine, support_for
from .target import ALL_FIELDS, shape_disagreements

__all__ = ["GpuPlan", "GpuRequest", "plan_for_gpus"]

_DEFAULT_VERSION = "1.2.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    flags: Inputs
    file: Inputs
    topology: Path | None = None
    preset: str | None = None
    profile: str | None = None
    quantize: str | None = None
    """Precision that the build of a TensorRT engine makes of plain weights, which the plan must count with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    plan: Plan
    machine: Machine | None
    profile: Profile | None


def plan_for_gpus(model: Model, request: GpuRequest, environ: Mapping[str, str]) -> GpuPlan:
    """Raises InputErrors for what is wrong in itself; what cannot work has `fits` False and findings."""
    if request.preset is not None and request.profile is not None:
        raise ConfigError(
            f"--preset {request.preset} and --profile {request.profile} are two sets of settings", hint="give one"
        )
    from_environment, problems = environment_inputs(environ, ALL_FIELDS)
    layers = [request.flags, from_environment, request.file]
    problems += shape_disagreements(layers)
    given = _whole_version(merge(*layers), problems)
    given = merge(given, preset_layer(request.preset, given))
    machine = _machine(request, given, environ)
    if machine is not None:
        given = merge(given, machine.inputs())
    gpu = machine.gpu if machine is not None and machine.is_planned_for(given) else None
    made = _resolve(given, model, gpu, request, problems)
    if machine is None:
        return made
    return replace(made, machine=machine, plan=with_findings(made.plan, machine.findings(made.plan.tp)))


def _resolve(given: Inputs, model: Model, gpu: Gpu | None, request: GpuRequest, problems: Sequence[str]) -> GpuPlan:
    aim = _aim(given, model, gpu)
    if request.quantize is not None:
        model = _quantised(model, request.quantize, aim.engine)
        aim = replace(aim, model=model)
    profile = wanted_profile(request.profile, aim)
    lower = merge(given, profile_layer(profile, aim, given))

    def settle(rules: Inputs) -> Plan:
        return resolve_gpu(
            merge(lower, rules),
            model,
            gpu=gpu,
            preset=request.preset if profile is None else f"{profile.name} of NVIDIA's guides",
            throughput="throughput" in (request.preset, request.profile),
            problems=problems,
        )

    rules = rules_layer(aim.situation())
    plan = settle(rules)
    assert plan.deployment is not None
    # Some rules ask for the shape, which the plan has just chosen.
    later = rules_layer(situation_of(plan.deployment.case))
    return GpuPlan(plan=plan if later == rules else settle(later), machine=None, profile=profile)


def _quantised(model: Model, precision: str, engine: str) -> Model:
    if engine != "trtllm-engine":
        raise ConfigError(
            f"--quantize is for trtllm-engine, and {model.name} is planned for {engine}",
            hint="leave it out, or --engine trtllm-engine; `seekserve convert` makes other weights for both",
        )
    return model_in(model, precision)


def _aim(given: Inputs, model: Model, found: Gpu | None) -> Aim:
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
    gpus = given.gpus.value if isinstance(given.gpus, Given) else gpu.node_gpus
    return Aim(model=model, gpu=gpu, gpus=gpus, engine=engine, version=version)


def _whole_version(given: Inputs, problems: list[str]) -> Inputs:
    """`1.2` as the release that it means; one that nothing is known of is noted."""
    wanted = given.trtllm_version
    if not isinstance(wanted, Given):
        return given
    try:
        return replace(given, trtllm_version=replace(wanted, value=resolve_version(str(wanted.value)).version))
    except ConfigError as error:
        hint = f" ({error.hint})" if error.hint else ""
        problems.append(f"{wanted.source_text}: {error.message}{hint}")
        return replace(given, trtllm_version=UNSET)


def _machine(request: GpuRequest, given: Inputs, environ: Mapping[str, str]) -> Machine | None:
    is_auto = isinstance(given.gpu, Given) and str(given.gpu.value).lower() == "auto"
    if not is_auto and request.topology is None:
        return None
    return read_machine(request.topology, environ, reads_gpus=is_auto)
