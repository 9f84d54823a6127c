"""The arguments of one build for the PyTorch backend: decided, without what the version lacks, with the user's own.

Errors are gathered and raised together: values that the plan resolved otherwise, and whatever TensorRT-LLM of exactly
this version would refuse. Doubts are warnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from seekserve.errors import ConflictError
from seekserve.output import problems_text
from seekserve.plan.curated import curated_args, curated_notes, find_profile, situation_of
from seekserve.plan.deployment import Deployment
from seekserve.plan.plan import Plan, Source
from seekserve.trtllm import ArgFinding, ModelCase, VersionFacts, raise_errors, resolve_version, validate_llm_args

from .llm_args import Args, decided_args, nested
from .outcome import TrtllmWish
from .user_args import conflicts, laid_over

__all__ = ["settled_args"]

_OPTIONAL: Final = (
    "attention_dp_config",
    "custom_tokenizer",
    "enable_lm_head_tp_in_adp",
    "moe_config",
    "stream_interval",
)
_RELAXED: Final = ("use_relaxed_acceptance_for_thinking", "relaxed_topk", "relaxed_delta")


def settled_args(wish: TrtllmWish, plan: Plan) -> tuple[Args, tuple[str, ...]]:
    """With the warnings. Raises ConflictError or ConfigError with everything that is wrong."""
    deployment = plan.deployment
    assert deployment is not None
    version = resolve_version(deployment.target.version)
    args, left_out = _supported(_decided(wish, plan, version), deployment, version)
    problems = conflicts(args, wish.args, wish.args_sources, deployment.case.wish.mtp)
    args = laid_over(args, wish.args, wish.args_sources)
    findings = _findings(args, deployment, version)
    problems += _own_rules(args, wish, plan)
    if problems:
        problems += [finding.text for finding in findings if finding.is_error]
        raise ConflictError(problems_text("no engine", problems), hint="nothing was written")
    raise_errors(findings, f"arguments for TensorRT-LLM {version.version}")
    return args, (*left_out, *_warnings(deployment, args, findings))


def _decided(wish: TrtllmWish, plan: Plan, version: VersionFacts) -> Args:
    assert plan.deployment is not None
    case = plan.deployment.case
    situation = situation_of(case)
    profile = None if wish.profile is None else find_profile(wish.profile, situation)
    curated = curated_args(situation, profile, is_moe=case.model.is_moe)
    return decided_args(plan, version, curated, max_beam_width=wish.max_beam_width)


def _supported(args: Args, deployment: Deployment, version: VersionFacts) -> tuple[Args, list[str]]:
    """Without the guides' settings that this version refuses, or is not known to have: they cannot be worth a crash."""
    out = Args(values=dict(args.values), sources=dict(args.sources))
    left_out = []
    for finding in _findings(args, deployment, version):
        for path in [path for path in out.values if _is_about(finding, path) and _is_optional(path)]:
            left_out.append(f"{path} is left out: {finding.message}")
            out.drop(path)
    return out, left_out


def _is_optional(path: str) -> bool:
    top, _, name = path.partition(".")
    return top in _OPTIONAL or (top == "speculative_config" and name in _RELAXED)


def _is_about(finding: ArgFinding, path: str) -> bool:
    return path == finding.path or path.startswith(f"{finding.path}.") or finding.path.startswith(f"{path}.")


def _findings(args: Args, deployment: Deployment, version: VersionFacts) -> list[ArgFinding]:
    case = deployment.case
    return validate_llm_args(
        nested(args.values),
        version,
        engine_kind=deployment.target.engine,
        case=ModelCase(
            architecture=case.model.architecture,
            weights=case.model.precision,
            kv_dtype=case.wish.kv_dtype,
            sm=case.target.gpu.sm,
            world_size=case.shape.gpus,
        ),
    )


def _own_rules(args: Args, wish: TrtllmWish, plan: Plan) -> list[str]:
    assert plan.deployment is not None
    problems = []
    beams, kind = args.values.get("max_beam_width"), args.values.get("speculative_config.decoding_type")
    if isinstance(beams, int) and beams > 1 and kind is not None:
        problems.append(f"max_beam_width is {beams} and speculative_config is {kind}: drafts are for one beam")
    if wish.retention is not None and args.values.get("kv_cache_config.enable_block_reuse") is False:
        where = args.sources["kv_cache_config.enable_block_reuse"]
        problems.append(f"retention of blocks needs kv_cache_config.enable_block_reuse, which is off ({where})")
    return [*problems, *_indexer_problems(plan, plan.deployment)]


def _indexer_problems(plan: Plan, deployment: Deployment) -> list[str]:
    """V3.2 takes the format as an argument; V4 has fp4 of itself, and the section would replace its compress_ratios."""
    source, case = plan.sources["kv_cache.indexer_dtype"], deployment.case
    architecture, wanted = case.model.architecture, case.wish.indexer_dtype
    is_given = source.startswith((Source.FLAG.value, Source.ENVIRONMENT.value, Source.FILE.value))
    if not is_given or architecture == "deepseek_v32" or (architecture == "deepseek_v4" and wanted == "fp4"):
        return []
    if architecture == "deepseek_v4":
        return [
            f"indexer keys in {wanted} ({source}): TensorRT-LLM keeps those of V4 in fp4 unless told all of V4's shape"
        ]
    return [f"indexer keys in {wanted} ({source}): {case.model.name} has no indexer; leave it out"]


def _warnings(deployment: Deployment, args: Args, findings: Sequence[ArgFinding]) -> list[str]:
    case = deployment.case
    # The checkpoint's own are in the build's report already.
    found = [f"{each.message} -> {each.hint}" for each in deployment.findings if each.rule != "checkpoint"]
    found += [each.text for each in findings if not each.is_error]
    drafts, layers = case.wish.mtp, case.model.mtp_layers
    if drafts > layers > 0:
        found.append(f"{drafts} tokens are drafted with {layers} MTP layer, which runs {drafts} times in a step")
    kind = args.values.get("speculative_config.decoding_type")
    if kind not in (None, "MTP"):
        found.append(f"speculative_config {kind}: the plan counts no memory for its draft model")
    beams = args.values.get("max_beam_width", 1)
    if beams > 1:
        found.append(f"max_beam_width {beams}: a request with so many beams holds its answer's cache {beams} times")
    return [*found, *curated_notes(situation_of(case))]
