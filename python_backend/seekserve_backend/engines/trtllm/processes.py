"""The worker processes that TensorRT-LLM starts: which Python they run, whether they live, and their end.

Also for one GPU the worker stays a process of its own (TLLM_WORKER_USE_SINGLE_PROCESS is left alone): it streams faster
so, and its death is not the server's. Only descendants of this process that were not there before the engine started
are ever touched, each by its pid and its start time, so that a reused pid is never taken for a worker.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..port import EngineError

__all__ = ["Worker", "Workers", "use_right_python"]

_log = logging.getLogger(__name__)
_PROC = Path("/proc")
_KILL_S = 2.0
# How mpi4py's pool starts a rank of the model; other children (compilers, trackers) may end at any time.
_RANK_MARK = b"mpi4py.futures"
_ASK = "import importlib.util, sys; print(sys.version_info[:2], importlib.util.find_spec('tensorrt_llm') is not None)"


@dataclass(frozen=True, slots=True)
class Worker:
    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        stat = _stat(self.pid)
        return stat is not None and stat.start_ticks == self.start_ticks and stat.state not in "ZX"


class Workers:
    """Made before the engine is: what is there already is not its worker."""

    def __init__(self) -> None:
        self._before = set(_descendants())
        self._ranks: tuple[Worker, ...] = ()

    def note_ranks(self) -> None:
        """Once the engine is up: from now on these must live."""
        self._ranks = tuple(worker for worker in self._own() if _RANK_MARK in _command_line(worker.pid))

    def dead_rank(self) -> int | None:
        """The pid of a rank that is gone: releases before mid-2026 leave what waits for it waiting for ever."""
        return next((worker.pid for worker in self._ranks if not worker.is_alive), None)

    def kill_left(self, *, grace_s: float) -> int:
        """Ends what the engine's own shutdown left behind; returns how many that were."""
        left = self._own()
        _send(left, signal.SIGTERM)
        _wait_gone(left, grace_s)
        _send(left, signal.SIGKILL)
        _wait_gone(left, _KILL_S)
        for worker in left:
            _reap(worker.pid)
        return len(left)

    def _own(self) -> list[Worker]:
        return [worker for worker in _descendants() if worker not in self._before and worker.is_alive]


def use_right_python() -> str:
    """Makes new processes run a Python that has the packages of this one; returns its path.

    In Triton's stub `sys.executable` is whatever PATH finds, and both multiprocessing and mpi4py start workers with it.
    Raises EngineError when no Python of this version is found.
    """
    python = _find_python()
    sys.executable = python
    multiprocessing.set_executable(python)
    folder = str(Path(python).parent)
    found = shutil.which("python3")
    if found is None or not Path(found).samefile(python):
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    return python


def _find_python() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    same_version = []
    for candidate in dict.fromkeys(_candidates(version)):
        answer = _ask(candidate)
        if answer is None or not answer.startswith(str(tuple(sys.version_info[:2]))):
            continue
        if answer.endswith("True"):
            return candidate
        same_version.append(candidate)
    if same_version:
        # Workers are handed sys.path by their pool, so the right version is enough when no Python has it by itself.
        return same_version[0]
    raise EngineError(
        f"TensorRT-LLM starts workers, and no Python {version} with its packages was found "
        f"(looked at {', '.join(dict.fromkeys(_candidates(version))) or 'nothing'}); put one on the server's PATH"
    )


def _candidates(version: str) -> Iterable[str]:
    """Beside the packages first: <prefix>/lib/python3.x/site-packages belongs to <prefix>/bin/python3.x."""
    prefixes = [
        str(Path(entry).parents[2])
        for entry in sys.path
        if Path(entry).name in ("site-packages", "dist-packages") and len(Path(entry).parents) > 2
    ]
    for prefix in dict.fromkeys([*prefixes, sys.prefix, sys.base_prefix]):
        names = (Path(prefix) / "bin" / name for name in (f"python{version}", "python3"))
        yield from [str(path) for path in names if path.is_file()][:1]
    for found in (sys.executable, shutil.which(f"python{version}"), shutil.which("python3")):
        if found:
            yield found


@functools.cache
def _ask(python: str) -> str | None:
    """Asked once: a new engine after a failure need not wait for it again."""
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    state: str
    start_ticks: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold anything, brackets and blanks included.
    fields = text.rpartition(")")[2].split()
    return _Stat(int(fields[1]), fields[0], int(fields[19]))


def _descendants() -> list[Worker]:
    stats = {
        int(entry.name): stat
        for entry in _PROC.iterdir()
        if entry.name.isdecimal() and (stat := _stat(int(entry.name)))
    }
    found: list[Worker] = []
    parents = [os.getpid()]
    while parents:
        parent = parents.pop()
        for pid, stat in stats.items():
            if stat.parent == parent:
                found.append(Worker(pid, stat.start_ticks))
                parents.append(pid)
    return found


def _command_line(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def _send(workers: Iterable[Worker], number: signal.Signals) -> None:
    for worker in workers:
        if worker.is_alive:
            try:
                os.kill(worker.pid, number)
            except ProcessLookupError:
                continue


def _wait_gone(workers: list[Worker], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while any(worker.is_alive for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except OSError:  # not our direct child, or reaped already
        return
