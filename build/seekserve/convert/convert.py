"""A conversion from beginning to end: plan, refuse, write or continue, check what was written, rename.

OUT exists only when every step has succeeded. A run that was interrupted leaves OUT.partial for `resume`; one that
found bad values in the source removes what it made, since no later run could finish it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from seekserve.checkpoint import read_checkpoint, verify
from seekserve.errors import CheckpointError, InputError
from seekserve.output import problems_text

from .journal import JOURNAL_FILE, Journal, file_digest
from .kernel import Quantise
from .layout import OutputShard
from .needs import Needs, check_needs, needs_of
from .partial import Partial, check_target
from .plan import ConversionPlan, Target, plan_conversion
from .report import ConvertReport
from .shards import Progress, require_torch, write_shards
from .side_files import side_files
from .verify import Verification, verify_output

__all__ = ["ConvertRequest", "Listener", "convert"]

_LISTED: Final = 200
_WORTH_COMPILING_BYTES: Final = 1024**3
"""Below it torch is done before a compiler is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertRequest:
    checkpoint: str
    out: Path
    target: Target
    workers: int
    resume: bool = False
    verify: bool = False
    dry_run: bool = False


class Listener(Protocol):
    """Whoever wants to know how a run goes on."""

    def needs(self, needs: Needs) -> None:
        """Before anything is written."""

    def stage(self, name: str, total_bytes: int) -> Progress:
        """A stage begins; the returned function is told of bytes done, from several threads."""


class _Silent:
    def needs(self, needs: Needs) -> None:
        del needs

    def stage(self, name: str, total_bytes: int) -> Progress:
        del name, total_bytes
        return _ignore


def convert(
    request: ConvertRequest,
    *,
    memory_free_bytes: int,
    listener: Listener | None = None,
    kernel: Callable[[], Quantise] | None = None,
) -> ConvertReport:
    """`kernel` makes the quantising kernel of each thread; by default the fastest that this machine has."""
    listener = listener or _Silent()
    plan = plan_conversion(request.checkpoint, request.target)
    check_target(request.out, plan.folder, resume=request.resume)

    def needs_for(shards: Sequence[OutputShard]) -> Needs:
        place = request.out.parent
        return needs_of(plan, shards, place, workers=request.workers, memory_free_bytes=memory_free_bytes)

    if request.dry_run:
        return ConvertReport(plan=plan, out=request.out, needs=needs_for(plan.shards))
    require_torch()
    try:
        return _run(request, plan, needs_for, listener, kernel)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise InputError(
            f"cannot write {request.out}: {error.strerror or error}{where}",
            hint="the finished shards are kept: remove the cause, then use --resume",
        ) from error


def _run(
    request: ConvertRequest,
    plan: ConversionPlan,
    needs_for: Callable[[Sequence[OutputShard]], Needs],
    listener: Listener,
    kernel: Callable[[], Quantise] | None,
) -> ConvertReport:
    if not request.resume:
        check_needs(needs_for(plan.shards), request.out.parent)
    started = time.monotonic()
    with Partial(request.out) as partial:
        journal = Journal.begin(partial, plan) if partial.is_new else Journal.resume(partial, plan)
        finished = _intact(journal, plan, partial, listener, workers=request.workers)
        missing = [shard for shard in plan.shards if shard.file not in finished]
        needs = needs_for(missing)
        listener.needs(needs)
        check_needs(needs, request.out.parent)
        make, kernel_name = _kernel(plan, kernel)
        progress = listener.stage("converting", sum(shard.source_bytes for shard in missing))
        written = write_shards(plan, missing, partial, workers=request.workers, kernel=make, progress=progress)
        files = side_files(plan)
        names = [JOURNAL_FILE, *(shard.file for shard in plan.shards), *files]
        if written.faults:
            partial.remove(names)
            raise CheckpointError(
                problems_text(
                    f"{plan.folder}: tensors with values that are not finite; nothing was kept",
                    [str(fault) for fault in written.faults[:_LISTED]],
                ),
                hint="such a model cannot answer; download the shards again, or train from an earlier state",
            )
        seconds = time.monotonic() - started
        for name, content in files.items():
            partial.write(name, content)
        verification = _check(request, plan, partial, listener)
        partial.complete(names)
    return ConvertReport(
        plan=plan,
        out=request.out,
        needs=needs,
        kernel=kernel_name,
        kept_shards=len(finished),
        converted_bytes=sum(shard.source_bytes for shard in missing),
        seconds=seconds,
        verification=verification,
    )


def _intact(journal: Journal, plan: ConversionPlan, partial: Partial, listener: Listener, *, workers: int) -> list[str]:
    """Finished shards whose bytes still have the digest of the record; the others are made anew."""
    recorded = [shard for shard in plan.shards if shard.file in journal.finished]
    if not recorded:
        return []
    progress = listener.stage("checking finished shards", sum(shard.size_bytes for shard in recorded))

    def is_intact(shard: OutputShard) -> bool:
        try:
            descriptor = partial.open(shard.file)
        except FileNotFoundError:
            return False
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            return file_digest(file.fileno(), shard, progress) == journal.finished[shard.file]

    with ThreadPoolExecutor(workers) as pool:
        intact = list(pool.map(is_intact, recorded))
    return [shard.file for shard, is_good in zip(recorded, intact, strict=True) if is_good]


def _check(request: ConvertRequest, plan: ConversionPlan, partial: Partial, listener: Listener) -> Verification | None:
    """The output is read as any checkpoint is; with --verify its values are held against the source, too."""
    facts = read_checkpoint(partial.path)
    verify(facts)
    if not request.verify:
        return None
    progress = listener.stage("verifying", plan.source_bytes)
    return verify_output(plan, partial.path, workers=request.workers, progress=progress)


def _kernel(plan: ConversionPlan, given: Callable[[], Quantise] | None) -> tuple[Callable[[], Quantise], str]:
    if given is not None:
        return given, "given"
    from .kernel import TorchQuantiser
    from .native import quantiser

    if plan.target == "bf16" or plan.source_bytes < _WORTH_COMPILING_BYTES:
        return TorchQuantiser, TorchQuantiser.name
    return quantiser, quantiser().name


def _ignore(_count: int) -> None:
    return None
