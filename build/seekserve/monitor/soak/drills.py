"""Things that go wrong, brought about on purpose under load, and what clients saw of it.

Faults of the engine are given to the synthetic one through a file that no other engine looks at (see
engines/synthetic_faults.py); only the death of the server's process can be brought about on any launch.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seekserve.bench.openloop import Recording
from seekserve.server import Launch
from seekserve.server.heartbeat import read_heartbeats

from .stand import served

__all__ = ["DRILLS", "ENGINE_STALL_S", "Drill", "Seen", "chosen", "kill_stubs", "run_drill"]

FAULTS_VARIABLE = "SEEKSERVE_SYNTHETIC_FAULTS"
LOOK_S = 0.2
ENGINE_STALL_S = 10.0

Strike = Callable[[Path, Launch], None]


@dataclass(frozen=True, slots=True)
class Drill:
    name: str
    does: str
    strike: Strike


@dataclass(slots=True)
class Seen:
    """On `time.perf_counter`, as the recording's own start is."""

    struck_s: float = math.nan
    acted_s: float = math.nan
    """When the launch did something about it; NaN where it had not to."""
    trouble: str = ""
    recordings: list[Recording] = field(default_factory=list)

    @property
    def recording(self) -> Recording:
        (only,) = self.recordings
        return only

    @property
    def fault_s(self) -> float:
        """On the clock of the load."""
        return self.struck_s - self.recording.started_s

    @property
    def told_s(self) -> float:
        """From the fault until the first client was told of trouble; NaN where none was."""
        fault_s = self.fault_s
        ends = (
            outcome.end_s
            for outcome in self.recording.outcomes
            if outcome.state in ("failed", "refused", "expired") and outcome.end_s is not None
        )
        return min((end_s for end_s in ends if end_s > fault_s), default=math.nan) - fault_s


def _tell(**fault: object) -> Strike:
    def strike(file: Path, _: Launch) -> None:
        _write(file, fault)

    return strike


def kill_stubs(run_dir: Path) -> int:
    """SIGKILL to every process that serves a model of this launch; how many there were."""
    beats = read_heartbeats(run_dir)
    for beat in beats:
        os.kill(beat.pid, signal.SIGKILL)
    return len(beats)


def _kill(_: Path, launch: Launch) -> None:
    kill_stubs(launch.prepared.run_dir)


def _replace_policy(_: Path, launch: Launch) -> None:
    """Another kind takes over, which must drop nothing that was accepted."""
    (model,) = launch.prepared.models
    assert model.policy_file is not None
    old = json.loads(model.policy_file.read_text("utf-8"))
    _write(model.policy_file, {**old, "name": "fcfs", "kind": "fcfs"})


def _write(file: Path, data: object) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps(data), encoding="utf-8")
    new.rename(file)


DRILLS = (
    Drill("raise", "the engine raises in a step", _tell(fault="raise")),
    Drill("hang", "a step takes 6 s more", _tell(fault="hang", for_s=6)),
    Drill("stuck", f"a step never ends ({ENGINE_STALL_S:g} s are allowed)", _tell(fault="hang", for_s=600)),
    Drill("slow", "every step takes twice as long for 20 s", _tell(fault="slow", factor=2, for_s=20)),
    Drill("lose_kv", "the engine loses its cache with all that runs", _tell(fault="lose_kv")),
    Drill("kill", "SIGKILL to the process that serves", _kill),
    Drill("policy", "the policy is replaced by one of another kind", _replace_policy),
)


class _Load:
    """The requests of a drill, sent from a thread of their own, so that this one can look after the server."""

    def __init__(self, send: Callable[[], Coroutine[Any, Any, Recording]]) -> None:
        self.recordings: list[Recording] = []
        self._failure: BaseException | None = None
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[Recording]] | None = None
        self._thread = threading.Thread(target=self._run, args=(send,), name="drill-load")

    def start(self) -> None:
        self._thread.start()

    @property
    def is_going_on(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """At once: what is still open is given up."""
        while self._thread.is_alive():
            if self._task is not None:
                loop, task = self._task
                with contextlib.suppress(RuntimeError):  # the loop is closed: it has just ended
                    loop.call_soon_threadsafe(task.cancel)
            self._thread.join(0.1)

    def result(self) -> list[Recording]:
        if self._failure is not None:
            raise self._failure
        return self.recordings

    def _run(self, send: Callable[[], Coroutine[Any, Any, Recording]]) -> None:
        async def go() -> None:
            task = asyncio.ensure_future(send())
            self._task = (asyncio.get_running_loop(), task)
            self.recordings.append(await task)

        try:
            asyncio.run(go())
        except BaseException as error:
            self._failure = error


def run_drill(
    drill: Drill, folder: Path, send: Callable[[str], Coroutine[Any, Any, Recording]], *, fault_at_s: float
) -> Seen:
    """On a fresh server; `send` sends its requests to an address and ends when all is over. The server is recovered as
    `seekserve launch` does it."""
    file, seen = folder / "faults.json", Seen()
    file.unlink(missing_ok=True)
    with served(folder, "paced", {FAULTS_VARIABLE: str(file)}, engine_stall_s=ENGINE_STALL_S) as launch:
        address = launch.grpc_address
        load = _Load(lambda: send(address))
        begun_s = time.perf_counter()
        load.start()
        try:
            while load.is_going_on:
                time.sleep(LOOK_S)
                if math.isnan(seen.struck_s) and time.perf_counter() - begun_s >= fault_at_s:
                    seen.struck_s = time.perf_counter()
                    drill.strike(file, launch)
                trouble = launch.trouble()
                if trouble is not None:
                    seen.acted_s, seen.trouble = time.perf_counter(), trouble
                    launch.recover(trouble)
        finally:
            load.end()
    seen.recordings = load.result()
    return seen


def chosen(names: Sequence[str] | None) -> list[Drill]:
    """In their own order; KeyError of a name that is none."""
    known = {drill.name: drill for drill in DRILLS}
    return list(DRILLS) if names is None else [known[name] for name in names]
