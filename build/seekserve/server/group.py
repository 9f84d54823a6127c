"""A launcher (mpirun or srun) and the ranks under it, which live and die together.

A rank that vanishes is trouble at once, whatever the launcher makes of it: trtllm-llmapi-launch outlives the server
that it started, and a rank that ends with status 0 does not stir mpirun. A stop begins at the serving tritonserver,
which still needs the other ranks for what is in flight; they are asked when it is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from seekserve.server.plans.plan import LaunchPlan
from seekserve.server.process import RUN_DIR_VARIABLE, ServerProcess, describe_status
from seekserve.server.rank_log import first_failure, last_lines

__all__ = ["RANK_DEATH_S", "RankGroup"]

RANK_DEATH_S = 5.0
"""A dead rank on this machine ends all others within this time of being noticed."""
# How long the launcher may take to say which rank it was that ended.
_WORDS_S = 2.0
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK")
_ALL_THERE_S = 5.0
_LOG_BYTES = 256 * 1024
# From the end of the serving rank: time for mpirun to end by itself, then for the others to.
_LINGER_S = 1.0


class RankGroup(ServerProcess):
    def __init__(self, plan: LaunchPlan, env: Mapping[str, str], log_file: Path, run_dir: Path) -> None:
        self._plan = plan
        self._folder = run_dir
        self._noted: dict[str, int] = {}
        self._stopping: int | None = None
        """The serving tritonserver that was asked to stop; 0 when it was not found."""
        self._gone_s: float | None = None
        self._asked_all = False
        self._failed_before = False
        super().__init__(plan.argv, env, log_file)

    def trouble(self) -> str | None:
        gone = [f"{who} (pid {pid}) is dead" for who, pid in self._noted.items() if not _runs(pid)]
        gone += [f"{who} is not running" for who in self._missing() if self._noted]
        dead = ", ".join(gone) or None
        if dead is None and self.status() is None and self._file_status() is None:
            return None
        self.wait(_WORDS_S)
        named, status = first_failure(self.output(_LOG_BYTES)), self.status()
        ended = "" if status is None else f"{self._plan.launcher} (pid {self.pid}) ended with {describe_status(status)}"
        return "; ".join(part for part in (dead, named, ended) if part) + self._own_status()

    def explain(self, symptom: str) -> str:
        """A rank takes its stubs with it, and its death is told by the launcher a moment later."""
        self.wait(_WORDS_S)
        cause = self.trouble()
        return symptom if cause is None else f"{cause}; {symptom}"

    def tail(self, lines: int = 30) -> str:
        """mpirun's own words about a failed rank are eleven lines."""
        return super().tail(lines)

    def note_members(self) -> None:
        """The serving rank may be ready before one that it needs not for that has begun."""
        deadline_s = time.monotonic() + _ALL_THERE_S
        self._noted = self.members()
        while self._missing() and self.status() is None and time.monotonic() < deadline_s:
            time.sleep(0.1)
            self._noted = self.members()

    def _missing(self) -> list[str]:
        """Ranks of this machine that were not there when the service became ready."""
        if self._plan.kind != "leader" or len(self._plan.hosts) != 1:
            return []
        return [who for who in (f"rank {rank.number}" for rank in self._plan.servers) if who not in self._noted]

    def members(self) -> dict[str, int]:
        """`rank 1` -> process on this machine; the servers of the plan, and what carries workers to them."""
        found = self._by_files()
        for pid, rank in self._by_environment().items():
            found.setdefault(f"rank {rank}" if self._plan.kind == "leader" else f"worker rank {rank}", pid)
        return found

    def ask_to_stop(self) -> None:
        if self.status() is not None or self._stopping is not None:
            return
        self._stopping = self.members().get("rank 0", 0)
        if self._stopping:
            _signal(self._stopping)
        else:
            super().ask_to_stop()

    def wait(self, timeout_s: float) -> int | None:
        """As for one process; while stopping, also asks the other ranks once the serving one is gone."""
        if self._stopping and self.status() is None and not _runs(self._stopping):
            self._gone_s = self._gone_s or time.monotonic()
            if time.monotonic() - self._gone_s > _LINGER_S and not self._asked_all:
                self._ask_the_others()
        status = super().wait(timeout_s)
        return self._status_of_the_stop() if status is not None and self._asked_all else status

    def _ask_the_others(self) -> None:
        """Those elsewhere, and workers that no server leads, are out of reach but for the launcher."""
        self._asked_all = True
        self._failed_before = first_failure(self.output(_LOG_BYTES)) is not None
        for pid in self.members().values():
            _signal(pid)
        if self._launcher_is_asked:
            super().ask_to_stop()

    @property
    def _launcher_is_asked(self) -> bool:
        return self._plan.kind != "leader" or len(self._plan.hosts) != 1

    def _status_of_the_stop(self) -> int | None:
        """What the launcher makes of the end that it was asked for says nothing; a rank's own failure does."""
        own, status = self._file_status(), self.status()
        if own is not None:
            return _as_python(own)
        return 0 if self._launcher_is_asked and not self._failed_before else status

    def last_words(self) -> str:
        """One line for each rank, for a start that did not become ready."""
        assert self._plan.launcher is not None
        lines = last_lines(self.output(_LOG_BYTES), self._plan.world_size, self._plan.launcher)
        return "\n".join(f"  {line}" for line in lines)

    def _by_files(self) -> dict[str, int]:
        """What the scripts of the run folder wrote, of this machine."""
        found = {}
        for path in sorted(self._folder.glob("rank-*.pid")):
            host, _, pid = path.read_text(encoding="utf-8").strip().partition(" ")
            if host in (socket.gethostname(), os.uname().nodename) and pid.isdecimal():
                found[path.stem.replace("-", " ")] = int(pid)
        return found

    def _by_environment(self) -> dict[int, int]:
        """Processes that mpirun started on this machine: pid -> rank. Their children inherit the variable."""
        import psutil

        found: dict[int, int] = {}
        parents: dict[int, int] = {}
        for process in psutil.process_iter():
            try:
                env = process.environ()
                if env.get(RUN_DIR_VARIABLE) != str(self._folder) or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                rank = next((env[name] for name in _RANK_VARIABLES if name in env), None)
                if rank is not None and rank.isdecimal() and process.pid != self.pid:
                    found[process.pid], parents[process.pid] = int(rank), process.ppid()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return {pid: rank for pid, rank in found.items() if parents[pid] not in found}

    def _file_status(self) -> int | None:
        try:
            text = (self._folder / "rank-0.status").read_text(encoding="utf-8").strip()
        except OSError:
            return None
        return int(text) if text.isdecimal() else None

    def _own_status(self) -> str:
        status = self._file_status()
        return "" if status is None else f"; its tritonserver ended with {describe_status(_as_python(status))}"


def _as_python(status: int) -> int:
    """A shell counts an end by signal from 128 on."""
    return 128 - status if status > 128 else status


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return


def _runs(pid: int) -> bool:
    from seekserve.server.heartbeat import is_running

    return is_running(pid)
