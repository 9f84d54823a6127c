"""`build-engine --engine trtllm-engine`: everything decided and checked first, then two children, then one rename.

Until the rename nothing is at the target. A step that finished is kept in the work folder, whatever happens after it;
the folder goes when the bundle is whole.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seekserve.errors import ToolFailed
from seekserve.output import problems_text
from seekserve.plan.plan import Plan
from seekserve.trtllm.built_engine import engine_faults, read_engine_config
from seekserve_backend.contract.bundle import TRTLLM_ARGS_FILE, Bundle

from ..files import FileCopy
from ..outcome import BuildOutcome, BuildStep, BuildWish
from ..source import Source
from ..writer import Progress
from .args import args_text, engine_args
from .bundle import BUILD_RECORD, assemble, bundle_copies, describe, judge_existing
from .flags import max_beam_width
from .host import Host
from .job import Job, read_job
from .model_rules import check_model, model_warnings
from .needs import check_disk, check_gpu, check_memory, needs_of
from .process import Run, describe_status, log_tail, run_child
from .recipe import choose_recipe
from .steps import BUILD_STEP, Steps, compose_steps
from .tools import Tools, find_tools, require_tools
from .work import Work, check_work, discard_finished, finished_steps, open_work, work_folder

__all__ = ["build_trtllm_engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blueprint:
    job: Job
    tools: Tools
    steps: Steps
    bundle: Bundle
    copies: tuple[FileCopy, ...]
    texts: Mapping[str, str]
    needs: tuple[str, ...]
    warnings: tuple[str, ...]

    def outcome(self, status: str, bundle: Bundle, *, done: Sequence[str] = (), said: str = "") -> BuildOutcome:
        marked = [replace(step, status=said) if step.name in done else step for step in self.steps.steps]
        return BuildOutcome(
            bundle=bundle,
            status=status,
            copies=self.copies,
            steps=tuple(marked),
            texts=self.texts,
            needs=self.needs,
            warnings=self.warnings,
        )


def build_trtllm_engine(
    wish: BuildWish,
    plan: Plan,
    source: Source,
    *,
    progress: Progress,
    run: Run | None = None,
    host: Host | None = None,
) -> BuildOutcome:
    """Raises before anything starts when it cannot be built. `run` starts a child, a real one when it is None."""
    host = host or Host()
    made = _blueprint(wish, plan, source, host)
    target = wish.target
    exists = target.exists() or target.is_symlink()
    if exists:
        there = judge_existing(target, made.bundle, made.copies, made.texts, force=wish.force)
        if there is not None:
            if not wish.dry_run:
                discard_finished(work_folder(target), made.steps.digests)
            return made.outcome("reused", there)
    folder = work_folder(target)
    check_work(folder)
    done = finished_steps(folder, made.steps.digests)
    if wish.dry_run:
        missing = tuple(f"{problem}: the build could not start here" for problem in made.tools.problems)
        dry = replace(made, warnings=(*made.warnings, *missing))
        return dry.outcome("dry-run", made.bundle, done=done, said="reused")
    require_tools(made.tools, made.job.version)
    made = replace(made, warnings=(*made.warnings, *check_gpu(made.job, host), *check_memory(made.job, host)))
    check_disk(made.job, host, target.parent, made.job.engine_bytes * len(done))
    with open_work(target) as work:
        starter = run or functools.partial(run_child, keep_open=(work.lock,))
        statuses = _run_steps(made, work, host.environ, starter, progress)
        built = assemble(
            target,
            made.bundle,
            work.result(BUILD_STEP),
            made.copies,
            made.texts,
            replace_target=exists,
            progress=progress,
        )
        shutil.rmtree(folder, ignore_errors=True)
    outcome = made.outcome("replaced" if exists else "built", built)
    return replace(outcome, steps=statuses)


def _blueprint(wish: BuildWish, plan: Plan, source: Source, host: Host) -> _Blueprint:
    job = read_job(wish, plan, source)
    check_model(job)
    recipe = choose_recipe(job)
    tools = find_tools(recipe.script, wish.trtllm.examples_dir, host.environ, host.package)
    steps = compose_steps(job, recipe, tools, host.environ)
    beam_width = max_beam_width(job)
    args, warnings = engine_args(job, beam_width=beam_width)
    return _Blueprint(
        job=job,
        tools=tools,
        steps=steps,
        bundle=describe(job, args, beam_width=beam_width),
        copies=bundle_copies(job),
        texts={TRTLLM_ARGS_FILE: args_text(args, job), BUILD_RECORD: steps.record(job)},
        needs=needs_of(job, recipe),
        warnings=(*model_warnings(job), *steps.warnings, *warnings),
    )


def _run_steps(
    made: _Blueprint, work: Work, environ: Mapping[str, str], run: Run, progress: Progress
) -> tuple[BuildStep, ...]:
    finished = finished_steps(work.folder, made.steps.digests)
    work.keep_only(finished, made.steps.digests)
    each_bytes = made.job.engine_bytes
    out = []
    for position, step in enumerate(made.steps.steps):
        if step.name in finished:
            _check_result(made, step, work.result(step.name))
            out.append(replace(step, status="reused"))
        else:
            _run_step(made, step, work, environ, run)
            out.append(replace(step, status="done"))
        progress(step.name, each_bytes * (position + 1), each_bytes * len(made.steps.steps))
    return tuple(out)


def _run_step(made: _Blueprint, step: BuildStep, work: Work, environ: Mapping[str, str], run: Run) -> None:
    place = work.partial(step.name)
    log = work.log(step.name)
    try:
        status = run(step.argv, env={**environ, **step.env}, cwd=work.folder, log=log)
    except OSError as error:
        raise ToolFailed(f"{step.argv[0]} cannot be started: {error.strerror or error}", hint=_resume(work)) from error
    if status != 0:
        tail = log_tail(log).replace("\n", "\n    ")
        said = f"; the end of its log:\n    {tail}" if tail else ", and it said nothing"
        raise ToolFailed(
            f"{Path(step.argv[0]).name} of the step {step.name} failed ({describe_status(status)}){said}",
            hint=f"the whole log is {log}; {_resume(work)}",
        )
    _check_result(made, step, place)
    work.finish(step.name, made.steps.digests[step.name])


def _check_result(made: _Blueprint, step: BuildStep, place: Path) -> None:
    """A tool that ends well may still have left something else than was asked for."""
    if step.name == BUILD_STEP:
        facts = read_engine_config(place)
        faults = engine_faults(facts, made.bundle, needs_paged_context=made.job.wants_paged_context)
        what = "the engine is not the one of the plan"
    else:
        names = ["config.json", *(f"rank{rank}.safetensors" for rank in range(made.job.world_size))]
        faults = [f"{name} is missing or empty" for name in names if not _has_content(place / name)]
        what = f"the step {step.name} ended well but left no whole checkpoint"
    if faults:
        raise ToolFailed(
            problems_text(what, faults), hint=f"see {place.parent / step.name}.log; nothing was written to the target"
        )


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _resume(work: Work) -> str:
    return f"finished steps are kept in {work.folder}: the same command goes on from there; remove it to start anew"
