"""Builds bundles for the reference engine: the checkpoint's own weights and tokenizer, and the limits of the plan.

Nothing is converted: the engine reads FP8 block weights and bf16 weights as released. Everything is checked before the
first byte is written: the checkpoint, the plan, the target, the space on disk.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

import seekserve
from seekserve.errors import InputError
from seekserve.plan.facts import PlanFacts
from seekserve.plan.plan import Plan
from seekserve_backend.contract.bundle import Bundle, BundleFile, Parallel

from .existing import judge_existing
from .files import FileCopy
from .outcome import BuildOutcome, BuildWish
from .writer import Progress, check_disk_space, write_bundle

__all__ = ["ARCHITECTURES", "WEIGHT_DTYPES", "build_reference", "check_runnable"]

ARCHITECTURES = ("deepseek_v2", "deepseek_v3")
"""Those whose model classes transformers has and whose cache is one latent for each token."""
WEIGHT_DTYPES = ("fp8_block", "bf16", "fp16", "fp32")


def check_runnable(facts: PlanFacts) -> None:
    """Raises InputError for a model that the reference engine cannot run."""
    if facts.architecture in ARCHITECTURES and facts.weights_dtype not in WEIGHT_DTYPES:
        raise InputError(
            f"the reference engine reads {', '.join(WEIGHT_DTYPES)} weights, this checkpoint has {facts.weights_dtype}",
            hint="take the original release of the model",
        )
    if facts.architecture not in ARCHITECTURES:
        raise InputError(
            f"the reference engine runs the architectures {', '.join(ARCHITECTURES)}, this checkpoint is {facts.title}",
            hint="the tiny checkpoint that ships with seekserve runs anywhere: seekserve demo",
        )


def build_reference(wish: BuildWish, plan: Plan, copies: Sequence[FileCopy], *, progress: Progress) -> BuildOutcome:
    """Writes the bundle, or finds the very same one there. Raises before anything is written when it must not."""
    bundle = _describe(plan)
    exists = wish.target.exists() or wish.target.is_symlink()
    if exists and (there := judge_existing(wish.target, bundle, copies, force=wish.force)) is not None:
        return BuildOutcome(bundle=there, status="reused", copies=tuple(copies))
    check_disk_space(wish.target, copies, link_weights=wish.link_weights)
    if wish.dry_run:
        return BuildOutcome(bundle=bundle, status="dry-run", copies=tuple(copies))
    written = write_bundle(
        wish.target,
        bundle,
        copies,
        link_weights=wish.link_weights,
        replace_target=exists,
        progress=progress,
    )
    return BuildOutcome(bundle=written, status="replaced" if exists else "built", copies=tuple(copies))


def _describe(plan: Plan) -> Bundle:
    """The bundle before its files are known."""
    no_files: dict[str, BundleFile] = {}
    return Bundle(
        name=plan.name,
        family=plan.family,
        engine=plan.engine,
        toolkit_version=seekserve.__version__,
        engine_version=_engine_version(),
        gpu=plan.gpu,
        parallel=Parallel(tp=plan.tp, pp=plan.pp, ep=plan.ep),
        weights_dtype=plan.weights_dtype,
        weights_bytes=plan.weights_bytes,
        limits=plan.limits,
        kv=plan.kv,
        step_model=plan.step_model,
        sources=plan.sources,
        files=no_files,
    )


def _engine_version() -> str:
    """A bundle can be built where the engine is not installed; it is then not known which version will run it."""
    try:
        return f"transformers {importlib.metadata.version('transformers')}"
    except importlib.metadata.PackageNotFoundError:
        return "transformers (not installed where this was built)"
