"""One tritonserver and everything it starts: a session of its own, so that all of it can be ended together.

Only the leader gets SIGTERM (it drains and ends its stubs); SIGKILL goes to the whole group. Output goes to a file that
outlives this process, and its tail explains a failure. Zombies do not count: in a container nobody may reap them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ServerProcess", "describe_status", "kill_group", "living_members", "tail"]

_TAIL_BYTES = 4096


class ServerProcess:
    """Started by the constructor; `end` must be called, whatever happens."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log_file: Path) -> None:
        self.log_file = log_file
        with log_file.open("ab") as log:
            self._log_start_bytes = log.tell()
            self._process = subprocess.Popen(
                argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Also the id of its group and session."""
        return self._process.pid

    def status(self) -> int | None:
        """Exit status as subprocess counts it (negative: killed by that signal); None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        if self.status() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> int:
        """Kills whatever is left of the group, waits for it, and returns the leader's status."""
        kill_group(self.pid)
        status = self.wait(1.0)
        return -signal.SIGKILL if status is None else status

    def tail(self, lines: int = 12) -> str:
        return tail(self.log_file, lines, self._log_start_bytes)


def tail(path: Path, lines: int, start_bytes: int = 0) -> str:
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start_bytes, size - _TAIL_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def living_members(group: int) -> list[int]:
    """Processes of a group that still run; zombies excluded."""
    import psutil

    alive = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return alive


def kill_group(group: int, timeout_s: float = 10.0) -> bool:
    """SIGKILL to every member, then waits for the last one; False when one is still there (uninterruptible I/O)."""
    assert group > 1, group
    assert group != os.getpgrp(), "this would end the caller"
    deadline = time.monotonic() + timeout_s
    while living_members(group):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
