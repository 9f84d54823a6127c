"""Writes the shards of a plan into the partial folder, several tensors at a time, and records each when it is on disk.

While one shard is being put to disk the next is computed already. After the first fault nothing more is written, but
the rest of the source is still looked through, so that one report names every bad tensor.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from seekserve.errors import CheckpointError, MissingDependency

from .journal import append_finished, shard_digest
from .kernel import Quantise
from .layout import OutputShard, Work
from .partial import Partial
from .plan import ConversionPlan
from .source import changed_files
from .worker import Fault, Outcome, Place, Stopped, Worker

__all__ = ["Progress", "Written", "require_torch", "write_shards"]

Progress = Callable[[int], None]
"""Told how many more bytes of the source have been read; called from several threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    faults: tuple[Fault, ...]
    """When there are any, the output is not whole and must be thrown away."""


def require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "convert computes with torch, which is not installed", hint="pip install 'seekserve[local]'"
        ) from error


def write_shards(
    plan: ConversionPlan,
    shards: Sequence[OutputShard],
    partial: Partial,
    *,
    workers: int,
    kernel: Callable[[], Quantise],
    progress: Progress,
) -> Written:
    faults: list[Fault] = []
    with _one_thread_each(), _Crew(plan, workers, kernel, progress) as crew, ThreadPoolExecutor(1) as finisher:
        unfinished: Future[None] | None = None
        for shard in shards:
            if faults:
                nowhere = Place(descriptor=None, offsets={piece.name: 0 for piece in shard.pieces})
                faults += [o.fault for o in crew.run(shard.works, nowhere) if o.fault]
                continue
            with contextlib.ExitStack() as stack:
                descriptor = stack.enter_context(partial.new_file(shard.file, shard.size_bytes))
                os.pwrite(descriptor, shard.header, 0)
                outcomes = crew.run(shard.works, Place(descriptor=descriptor, offsets=shard.offsets))
                if unfinished is not None:
                    unfinished.result()
                    unfinished = None
                faults += [outcome.fault for outcome in outcomes if outcome.fault]
                if not faults:
                    _refuse_changed(plan)
                    checksums = {name: value for outcome in outcomes for name, value in outcome.checksums.items()}
                    closing = stack.pop_all()
                    unfinished = finisher.submit(_finish, partial, shard, checksums, descriptor, closing)
        if unfinished is not None:
            unfinished.result()
    return Written(faults=tuple(faults))


def _finish(
    partial: Partial, shard: OutputShard, checksums: dict[str, int], descriptor: int, closing: contextlib.ExitStack
) -> None:
    with closing:
        os.fsync(descriptor)
    partial.publish(shard.file)
    append_finished(partial, shard, shard_digest(shard, checksums))


def _refuse_changed(plan: ConversionPlan) -> None:
    changed = changed_files(plan.folder, plan.prints)
    if changed:
        raise CheckpointError(
            f"{plan.folder}: {len(changed)} files have changed during the conversion ({', '.join(changed[:3])})",
            hint="is it still being downloaded? start again when it is at rest",
        )


class _Crew:
    """Threads with a worker each; every tensor goes to whichever is free, large ones first."""

    def __init__(self, plan: ConversionPlan, workers: int, kernel: Callable[[], Quantise], progress: Progress) -> None:
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="convert")
        self._all = [Worker(plan.folder, plan.prints, kernel(), progress, self._stop.is_set) for _ in range(workers)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._all:
            self._idle.put(worker)

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        for worker in self._all:
            worker.close()

    def run(self, works: Sequence[Work], place: Place) -> list[Outcome]:
        ordered = sorted(works, key=lambda work: -work.source_bytes)
        futures = [self._pool.submit(self._one, work, place) for work in ordered]
        try:
            return [future.result() for future in futures]
        except BaseException:
            self._stop.set()  # the threads write to a file that is about to be closed: wait until none does
            for future in futures:
                future.cancel()
            wait(futures)
            raise

    def _one(self, work: Work, place: Place) -> Outcome:
        if self._stop.is_set():
            raise Stopped
        worker = self._idle.get()
        try:
            return worker.run(work, place)
        finally:
            self._idle.put(worker)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Tensors are spread over threads already; torch's own splitting would only make them wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
