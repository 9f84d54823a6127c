"""What one build is about, taken from plan, wish and checkpoint once, so that no later part looks them up again.

Refuses what no TensorRT engine can be before any flag is composed, each time with what works instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seekserve.errors import ConflictError
from seekserve.output import problems_text
from seekserve.plan.case import Case
from seekserve.plan.deployment import Deployment
from seekserve.plan.plan import Plan
from seekserve.plan.quantised import PLAIN_WEIGHTS
from seekserve.trtllm import ModelCase, VersionFacts, resolve_version, support
from seekserve_backend.contract.bundle import KvCache, Limits, Parallel

from ..llm_args import gpus_per_node
from ..outcome import BuildWish
from ..source import Source

__all__ = ["FP8_TYPE_WEIGHTS", "Job", "read_job"]

FP8_TYPE_WEIGHTS = ("fp8_tensor", "w4a8_awq", "nvfp4")
"""Those whose attention may compute in FP8 (builder.py: FP8, W4A8_AWQ, NVFP4)."""
_KIND = "trtllm-engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    plan: Plan
    deployment: Deployment
    wish: BuildWish
    source: Source
    version: VersionFacts
    stored: str
    """Precision of the checkpoint's projections."""
    wanted: str
    """Precision of the engine's projections."""

    @property
    def architecture(self) -> str:
        return self.source.facts.architecture

    @property
    def planned(self) -> Case:
        return self.deployment.case

    @property
    def limits(self) -> Limits:
        return self.plan.limits

    @property
    def kv(self) -> KvCache:
        return self.plan.kv

    @property
    def sm(self) -> int:
        return self.deployment.gpu.sm

    @property
    def is_moe(self) -> bool:
        return self.planned.model.is_moe

    @property
    def parallel(self) -> Parallel:
        shape = self.deployment.shape
        return Parallel(
            tp=shape.tp,
            pp=shape.pp,
            ep=shape.ep,
            moe_tp=shape.moe_tp if self.is_moe else 1,
            attention_dp=False,
            gpus_per_node=gpus_per_node(self.planned),
        )

    @property
    def world_size(self) -> int:
        return self.parallel.world_size

    @property
    def quantises(self) -> bool:
        """quantize.py makes the weights or the scales of the cache; otherwise convert_checkpoint.py rewrites them."""
        makes_weights = self.wanted != self.stored and self.wanted not in (*PLAIN_WEIGHTS, "int8")
        return makes_weights or self.kv.dtype == "fp8_e4m3"

    @property
    def compute_dtype(self) -> str:
        """Of what is not quantised, as TensorRT-LLM spells it."""
        if self.architecture == "deepseek_moe" and self.wanted == "fp8_tensor":
            return "float16"  # the only FP8 recipe that is published for it (README of deepseek_v1)
        return _compute_dtype(self.planned)

    @property
    def wants_reuse(self) -> bool:
        asked = _section(self.wish.trtllm.args, "kv_cache_config").get("enable_block_reuse")
        return asked if isinstance(asked, bool) else self.deployment.block_reuse

    @property
    def wants_chunks(self) -> bool:
        return self.planned.wish.chunked_prefill

    @property
    def wants_paged_context(self) -> bool:
        return self.wants_reuse or self.wants_chunks

    @property
    def engine_bytes(self) -> int:
        """All ranks together; also the size of the converted checkpoint."""
        return sum(rank.weights_bytes * rank.ranks for rank in self.deployment.ranks)

    @property
    def case(self) -> ModelCase:
        return ModelCase(
            architecture=self.architecture,
            weights=self.wanted,
            kv_dtype=self.kv.dtype,
            sm=self.sm,
            world_size=self.world_size,
        )


def read_job(wish: BuildWish, plan: Plan, source: Source) -> Job:
    """Raises ConflictError for a model, version or shape that has no TensorRT engine."""
    assert plan.deployment is not None, "an engine for GPUs needs a plan for GPUs"
    deployment = plan.deployment
    version = resolve_version(deployment.target.version)
    answer = support(source.facts.architecture, _KIND, version)
    if not answer.ok:
        raise ConflictError(f"no engine: {answer.sentence}")
    _refuse_without_effect(wish, deployment)
    wanted = plan.weights_dtype
    if wanted in PLAIN_WEIGHTS:  # fp32 is computed in bf16 here
        wanted = "fp16" if _compute_dtype(deployment.case) == "float16" else "bf16"
    return Job(
        plan=plan,
        deployment=deployment,
        wish=wish,
        source=source,
        version=version,
        stored=source.facts.weights_dtype,
        wanted=wanted,
    )


def _refuse_without_effect(wish: BuildWish, deployment: Deployment) -> None:
    """No option is passed over: what an engine does not have is refused where it was asked for."""
    problems = []
    if deployment.shape.attention_dp:
        problems.append("attention DP exists in the PyTorch backend only; an engine divides attention heads over TP")
    if deployment.case.wish.mtp:
        problems.append(f"--mtp {deployment.case.wish.mtp}: the engine path has no multi-token prediction")
    if wish.link_weights:
        problems.append("--weights link: an engine holds weights of its own, there is nothing to link to")
    if wish.trtllm.profile is not None:
        problems.append(f"--profile {wish.trtllm.profile}: curated settings exist for trtllm-pytorch only")
    if problems:
        raise ConflictError(
            problems_text("no engine", problems), hint="leave it out, or --engine trtllm-pytorch where the model runs"
        )


def _compute_dtype(case: Case) -> str:
    return "float16" if case.model.config.dtype == "float16" else "bfloat16"


def _section(args: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = args.get(name)
    return value if isinstance(value, Mapping) else {}
