"""Inputs + Model -> Plan for GPUs: machines and engine first, then the wish, then the shape, then every rule.

What cannot work is still a Plan, with `deployment.fits` False and findings that say why: the report shows the numbers,
`require_fit` turns them into the exception. Only values wrong in themselves raise here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seekserve.checkpoint import kv_cost
from seekserve.errors import ConfigError, ConflictError, DoesNotFit
from seekserve.output import problems_text
from seekserve_backend.contract.bundle import KvCache, Limits

from .case import Case, Target, Wish, work_out
from .deployment import Deployment
from .feasibility import kv_findings, size_findings, support_findings, weights_finding
from .finding import Finding
from .gpu_wish import wish_of
from .gpus import GIB, Gpu, find_gpu
from .inputs import Inputs
from .limit_checks import LIMIT_CHECKS
from .model import Model
from .parallel import shape_findings
from .pausing import pause_findings
from .plan import Plan, Source
from .search import Suggestion, best_shapes
from .shape import Shape
from .spill import spill_findings
from .step_models import step_model_for
from .support import default_engine, has_mla_kernels, support_for
from .target import ALL_FIELDS
from .values import Values
from .versions import version_key

__all__ = ["require_fit", "resolve_gpu", "with_findings"]

_SPECS = {spec.name: spec for spec in ALL_FIELDS}
_SHAPE = ("tp", "pp", "ep", "attention_dp")


def resolve_gpu(
    inputs: Inputs,
    model: Model,
    *,
    gpu: Gpu | None = None,
    preset: str | None = None,
    throughput: bool = False,
    problems: Sequence[str] = (),
) -> Plan:
    """`gpu` is the one found in this machine, otherwise the inputs name it; `preset` is what people are told.

    `throughput` prefers shapes for it. Raises ConfigError for wrong values.
    """
    values = Values(inputs=inputs, specs=_SPECS, problems=list(problems))
    target = _target(values, model, gpu)
    wish = wish_of(values, model, target)
    fixed: dict[str, int | bool] = {name: values.take(name, 1) for name in _SHAPE if values.is_given(name)}
    moe_tp = values.take("moe_tp", 1) if values.is_given("moe_tp") else None
    if moe_tp is not None and "tp" in fixed and "ep" not in fixed:
        fixed["ep"] = max(int(fixed["tp"]) // moe_tp, 1)
    policy = values.take("capacity_policy", "GUARANTEED_NO_EVICT")
    host_cache = int(values.take("host_cache_gib", 0.0) * GIB)
    use_uvm = values.take("kv_uvm", False)
    name = values.take("name", model.default_name, Source.CHECKPOINT.value)
    if values.problems:
        raise ConfigError(problems_text("no plan", values.problems))
    case, suggestions, findings = _choose(model, target, wish, fixed, moe_tp, throughput=throughput)
    _note_shape(values, fixed)
    sources = {**values.sources, **_settled(values, case)}
    judged = [found for check in LIMIT_CHECKS if (found := check(case, sources)) is not None]
    # Warnings about a cache that is not there would hide why.
    findings += [found for found in judged if found.is_error or case.loads]
    findings += spill_findings(case, host_cache, use_uvm=use_uvm)
    findings += pause_findings(case, policy) if case.loads else []
    findings += [_of_checkpoint(text) for text in model.warnings]
    deployment = Deployment(
        case=case,
        fits=not any(found.is_error for found in findings),
        capacity_policy=policy,
        host_cache_bytes=host_cache,
        use_uvm=use_uvm,
        block_reuse=_reuses_blocks(model, target),
        preset=preset,
        findings=tuple(sorted(findings, key=lambda f: ("error", "warning", "note").index(f.severity))),
        alternatives=suggestions,
    )
    return _plan(name, deployment, sources)


def with_findings(plan: Plan, more: Sequence[Finding]) -> Plan:
    """The plan with what was found after it was made."""
    deployment = plan.deployment
    assert deployment is not None
    findings = (*deployment.findings, *more)
    fits = not any(found.is_error for found in findings)
    return replace(plan, deployment=replace(deployment, findings=findings, fits=fits))


def require_fit(plan: Plan) -> None:
    """Raises DoesNotFit or ConflictError with every error finding."""
    errors = plan.deployment.errors if plan.deployment else ()
    if not errors:
        return
    text = problems_text("no plan", [finding.message for finding in errors])
    hint = "; ".join(dict.fromkeys(finding.hint for finding in errors))
    raise (DoesNotFit if all(finding.is_size for finding in errors) else ConflictError)(text, hint=hint)


def _of_checkpoint(text: str) -> Finding:
    return Finding(
        rule="checkpoint", message=text, hint="`seekserve inspect` shows the whole report", severity="warning"
    )


def _target(values: Values, model: Model, found: Gpu | None) -> Target:
    wanted = values.take("gpu", "")
    gpu = found
    if gpu is None:
        if not wanted:
            raise ConfigError("which GPU?", hint="--gpu h200_sxm, or --gpu auto on the machine that has them")
        gpu = find_gpu(wanted, values.sources["target.gpu"])
    engine = values.take("engine", default_engine(model.family))
    gpus = values.take("gpus", gpu.node_gpus, f"default: one node of {gpu.name}")
    nodes = values.take("nodes", max(-(-gpus // gpu.node_gpus), 1), f"derived: {gpu.node_gpus} GPUs in a host")
    if gpus % nodes:
        values.problems.append(f"{gpus} GPUs on {nodes} nodes: each node must have as many as the others")
    support = support_for(model.family, engine)
    version = values.take("trtllm_version", support.default_version if support else "1.2.1")
    try:
        version_key(version, values.sources["target.trtllm_version"])
    except ConfigError as error:
        values.problems.append(error.message)
        version = "1.2.1"
    return Target(gpu=gpu, gpus=gpus, nodes=nodes, engine=engine, version=version, support=support)


def _reuses_blocks(model: Model, target: Target) -> bool:
    """V4's partial reuse is unsound and switched off in newer sources; MLA reuse has kernels on some GPUs only."""
    if model.architecture.startswith("deepseek_v4"):
        return False
    return model.config.kv_lora_rank is None or has_mla_kernels("reuse", target.gpu.sm)


def _choose(
    model: Model, target: Target, wish: Wish, fixed: dict[str, int | bool], moe_tp: int | None, *, throughput: bool
) -> tuple[Case, tuple[Suggestion, ...], list[Finding]]:
    findings = [*support_findings(model, target), *kv_findings(model, target, wish.kv_dtype)]
    asked = _asked_shape(model, target, fixed)
    legal = shape_findings(model, target, asked, moe_tp) if fixed else []
    too_heavy = weights_finding(model, target, wish)
    if too_heavy is not None:
        return work_out(model, target, wish, asked), (), [*legal, *findings, too_heavy]
    if len(fixed) == len(_SHAPE) or legal:
        case = work_out(model, target, wish, asked)
        sizes = [] if legal else size_findings(case)
        return case, (), [*legal, *findings, *sizes]
    suggestions = best_shapes(model, target, wish, fixed, throughput=throughput)
    if suggestions:
        return suggestions[0].case, suggestions, findings
    case = work_out(model, target, wish, asked)
    return case, (), [*findings, *(shape_findings(model, target, asked, moe_tp) or size_findings(case))]


def _asked_shape(model: Model, target: Target, fixed: dict[str, int | bool]) -> Shape:
    """What was given, the rest as one would fill it in by hand: TP over a node, PP over nodes, EP = TP."""
    pp = int(fixed.get("pp", 1))
    tp = int(fixed.get("tp", max(min(target.gpus // pp, target.domain_gpus), 1)))
    if "pp" not in fixed and "tp" not in fixed:
        pp = max(target.gpus // tp, 1)
    ep = int(fixed.get("ep", tp if model.is_moe and model.config.n_routed_experts % tp == 0 else 1))
    return Shape(tp=tp, pp=pp, ep=ep, attention_dp=bool(fixed.get("attention_dp", False)))


def _note_shape(values: Values, fixed: dict[str, int | bool]) -> None:
    for name in _SHAPE:
        if name not in fixed:
            values.sources[_SPECS[name].plan_key] = "derived: best of the legal shapes"
    values.sources.setdefault("parallel.moe_tp", "derived: tp / ep")


def _settled(values: Values, case: Case) -> dict[str, str]:
    """Sources of what the outcome decided, unless somebody gave it."""
    given = {_SPECS[name].plan_key for name in _SPECS if values.is_given(name)}
    sources = {key: source for key, source in case.sources.items() if key not in given}
    if case.wish.max_num_tokens is not None and case.max_num_tokens < case.wish.max_num_tokens:
        sources["limits.max_num_tokens"] = "derived: max_batch_size requests of max_seq_len tokens"
    if not case.wish.chunked_prefill and case.wish.prefill_chunk_tokens is None:
        sources["limits.prefill_chunk_tokens"] = "derived: prompts are not cut"
    if case.capacity.binding_cap != "tokens":
        sources["kv_cache.capacity_blocks"] = f"derived: {case.fraction:.0%} of what is free after loading"
    return sources


def _plan(name: str, deployment: Deployment, sources: dict[str, str]) -> Plan:
    case, wish = deployment.case, deployment.case.wish
    model, shape = case.model, case.shape
    per_token = kv_cost(
        model.config,
        model.architecture,
        wish.kv_dtype,
        indexer_dtype=wish.indexer_dtype,
        mtp_layers=min(wish.mtp, model.mtp_layers),
    ).per_token_bytes
    return Plan(
        name=name,
        family=model.family,
        engine=case.target.engine,
        gpu=case.target.gpu.name,
        tp=shape.tp,
        pp=shape.pp,
        ep=shape.ep,
        weights_dtype=model.precision,
        weights_bytes=model.main_bytes,
        limits=Limits(
            max_seq_len_tokens=wish.max_seq_len_tokens,
            max_batch_size=case.max_batch_size,
            max_num_tokens=case.max_num_tokens,
            prefill_chunk_tokens=case.prefill_chunk_tokens,
        ),
        kv=KvCache(
            dtype=wish.kv_dtype,
            block_tokens=wish.block_tokens,
            capacity_blocks=case.capacity.blocks,
            bytes_per_token=per_token,
            may_pause=deployment.capacity_policy == "MAX_UTILIZATION",
        ),
        step_model=step_model_for(case),
        sources=sources,
        deployment=deployment,
    )
