"""One tritonserver, or the launcher of several, and everything that follows from it: a session of its own.

SIGTERM goes where a stop begins (a server drains and ends its stubs); SIGKILL goes to every process of the session or
with the launch's run folder in its environment, since MPI gives each rank a process group, and workers that an engine
spawned may have left the session. Output goes to a file that outlives this process, and its tail explains a failure.
Zombies do not count: in a container nobody may reap them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ServerProcess", "describe_status", "kill_all", "living_members", "tail"]

RUN_DIR_VARIABLE = "SEEKSERVE_RUN_DIR"
_TAIL_BYTES = 4096


class ServerProcess:
    """Started by the constructor; `end` must be called, whatever happens."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log_file: Path) -> None:
        self.log_file = log_file
        self._run_dir = env.get(RUN_DIR_VARIABLE)
        with log_file.open("ab") as log:
            self._log_start_bytes = log.tell()
            self._process = subprocess.Popen(
                argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Also the id of its session."""
        return self._process.pid

    def status(self) -> int | None:
        """Exit status as subprocess counts it (negative: killed by that signal); None while it runs."""
        return self._process.poll()

    def trouble(self) -> str | None:
        """What has ended that should not have, as a sentence."""
        status = self.status()
        return None if status is None else f"tritonserver (pid {self.pid}) ended with {describe_status(status)}"

    def explain(self, symptom: str) -> str:
        """The cause in front of a symptom, where the two come from one end."""
        return symptom

    def note_members(self) -> None:
        """Called once it is ready: whoever runs now must go on running."""

    def ask_to_stop(self) -> None:
        if self.status() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> int:
        """Kills whatever is left, waits for it, and returns the leader's status."""
        kill_all(self.pid, self._run_dir)
        status = self.wait(1.0)
        return -signal.SIGKILL if status is None else status

    def tail(self, lines: int = 12) -> str:
        return tail(self.log_file, lines, self._log_start_bytes)

    def output(self, limit_bytes: int) -> str:
        """The end of what was written since this start."""
        return _end_of(self.log_file, limit_bytes, self._log_start_bytes)


def tail(path: Path, lines: int, start_bytes: int = 0) -> str:
    return "\n".join(_end_of(path, _TAIL_BYTES, start_bytes).splitlines()[-lines:])


def _end_of(path: Path, limit_bytes: int, start_bytes: int) -> str:
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start_bytes, size - limit_bytes))
            return log.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def living_members(session: int, run_dir: str | None = None) -> list[int]:
    """Processes of a session, or with this run folder in their environment, that still run; zombies excluded."""
    import psutil

    alive = []
    for process in psutil.process_iter():
        try:
            is_member = os.getsid(process.pid) == session or (
                run_dir is not None and process.environ().get(RUN_DIR_VARIABLE) == run_dir
            )
            if is_member and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process.pid)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return alive


def kill_all(session: int, run_dir: str | None = None, timeout_s: float = 10.0) -> bool:
    """SIGKILL to every member, then waits for the last one; False when one is still there (uninterruptible I/O)."""
    assert session > 1, session
    assert session != os.getsid(0), "this would end the caller"
    deadline = time.monotonic() + timeout_s
    while members := living_members(session, run_dir):
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
