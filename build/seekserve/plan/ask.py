"""The `plan` job as one call: checkpoint, inputs from all sources, machine, estimate -> an answer.

Reads files and, on request, this machine; decides nothing that the resolvers do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from seekserve.errors import ConfigError
from seekserve.output import problems_text

from .ask_gpu import GpuRequest, plan_for_gpus
from .beside import read_saved_ranks, sharing_findings
from .cost import Comparison, compare, read_saved_estimate
from .curated import Profile
from .estimate import Estimate, Slo, estimate_plan
from .estimate_text import estimate_text
from .gpu_resolve import require_fit, with_findings
from .inputs import Given, Inputs, environment_inputs, flag_inputs, merge
from .machine import Machine
from .model import read_model
from .plan import Plan
from .presets import preset_notes, preset_reasons
from .report import plan_text
from .report_explain import explain_text, guide_lines
from .report_json import plan_json
from .target import ALL_FIELDS

__all__ = ["PlanAnswer", "PlanRequest", "make_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    checkpoint: str
    inputs: Inputs
    """From flags alone."""
    explain: bool = False
    preset: str | None = None
    profile: str | None = None
    quantize: str | None = None
    topology: Path | None = None
    estimate: str | None = None
    slo_ttft_ms: float = 2000.0
    slo_tpot_ms: float = 50.0
    price_per_gpu_hour: float | None = None
    against: Path | None = None
    one_off_cost: float | None = None
    beside: Path | None = None

    @classmethod
    def from_flags(cls, checkpoint: str, flags: Mapping[str, Any], *, explain: bool) -> PlanRequest:
        names = {spec.name for spec in ALL_FIELDS}
        own = {field.name for field in fields(cls)}
        return cls(
            checkpoint=checkpoint,
            inputs=flag_inputs({name: flags[name] for name in names & flags.keys()}, ALL_FIELDS),
            explain=explain,
            **{name: value for name, value in flags.items() if name in own},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    plan: Plan
    request: PlanRequest
    machine: Machine | None
    profile: Profile | None
    estimate: Estimate | None
    comparison: Comparison | None

    def text(self) -> str:
        parts = [plan_text(self.plan)]
        if self.machine is not None:
            parts.append("\n".join(self.machine.lines()))
        if self.request.preset and self.request.explain:
            reasons = [f"  {key}: {why}" for key, why in preset_reasons(self.request.preset).items()]
            notes = [f"  {note}" for note in preset_notes(self.request.preset)]
            parts.append("\n".join([f"Preset {self.request.preset}", *reasons, *notes]))
        if self.request.explain:
            parts += guide_lines(self.plan, self.profile)
        if self._wants_estimate:
            parts.append(estimate_text(self.plan, self.estimate))
        if self.comparison is not None:
            parts.append("\n".join(self.comparison.lines()))
        if self.request.explain:
            parts.append(explain_text(self.plan))
        return "\n\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        out = plan_json(self.plan, explain=self.request.explain, estimate=self.estimate)
        out["preset"] = self.request.preset
        out["profile"] = None if self.profile is None else self.profile.name
        out["topology"] = None if self.machine is None else self.machine.to_json()
        out["comparison"] = None if self.comparison is None else self.comparison.to_json()
        return out

    def require_fit(self) -> None:
        """Raises DoesNotFit or ConflictError when the plan has errors."""
        require_fit(self.plan)

    @property
    def _wants_estimate(self) -> bool:
        asked = self.request
        return asked.estimate is not None or asked.price_per_gpu_hour is not None


def make_plan(request: PlanRequest, file_inputs: Inputs, environ: Mapping[str, str]) -> PlanAnswer:
    """Raises InputErrors for what is wrong in itself; a plan that is not possible is an answer."""
    _check_options(request)
    _check_engine(merge(request.inputs, environment_inputs(environ, ALL_FIELDS)[0], file_inputs))
    model = read_model(request.checkpoint)
    asked = GpuRequest(
        flags=request.inputs,
        file=file_inputs,
        topology=request.topology,
        preset=request.preset,
        profile=request.profile,
        quantize=request.quantize,
    )
    made = plan_for_gpus(model, asked, environ)
    plan = made.plan
    if request.beside is not None and plan.deployment is not None:
        plan = with_findings(plan, sharing_findings(plan.deployment.case, *read_saved_ranks(request.beside)))
    if request.estimate == "aiconfigurator" and plan.deployment is not None and plan.deployment.case.loads:
        from .aiconfigurator import fit_with_aiconfigurator

        plan = replace(plan, step_model=fit_with_aiconfigurator(plan, plan.deployment.case.model))
    estimate = _estimate(request, plan)
    comparison = None
    if request.against is not None:
        saved = read_saved_estimate(request.against)
        comparison = compare(estimate, saved, one_off_cost=request.one_off_cost)
    return PlanAnswer(
        plan=plan,
        request=request,
        machine=made.machine,
        profile=made.profile,
        estimate=estimate,
        comparison=comparison,
    )


def _check_options(request: PlanRequest) -> None:
    problems = []
    for name in ("slo_ttft_ms", "slo_tpot_ms", "price_per_gpu_hour", "one_off_cost"):
        value = getattr(request, name)
        if value is not None and not 0 < value < 1e12:
            problems.append(f"--{name.replace('_', '-')} must be above 0, got {value}")
    if request.against is not None and request.price_per_gpu_hour is None:
        problems.append("--against compares costs: give --price-per-gpu-hour too")
    if request.one_off_cost is not None and request.against is None:
        problems.append("--one-off-cost is paid back against another plan: give --against too")
    if problems:
        raise ConfigError(problems_text("no plan", problems))


def _check_engine(inputs: Inputs) -> None:
    engine = inputs.engine
    if isinstance(engine, Given) and engine.value in ("reference", "synthetic"):
        raise ConfigError(
            f"{engine.source_text}: the {engine.value} engine runs on the CPU and has no GPU plan",
            hint="`seekserve build-engine CHECKPOINT --dry-run` shows its plan; for GPUs --engine trtllm-pytorch "
            "or trtllm-engine",
        )


def _estimate(request: PlanRequest, plan: Plan) -> Estimate | None:
    if request.estimate is None and request.price_per_gpu_hour is None:
        return None
    slo = Slo(ttft_ms=request.slo_ttft_ms, tpot_ms=request.slo_tpot_ms)
    return estimate_plan(plan, slo=slo, price_per_gpu_hour=request.price_per_gpu_hour)
