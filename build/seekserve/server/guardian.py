"""Cleans up after a launch whose own process was killed outright; a separate small process, standard library only.

It reads orders from a pipe that only the launch holds: `session N` (end this session), `done` (nothing to do). When the
pipe closes without `done`, it ends the session and whoever carries the run folder in its environment (ranks and workers
may have left the session), and removes the launch's shared memory and its run folder.
Run as a file, not as a module, so that it imports nothing of the package.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["Guardian"]


class Guardian:
    """The launch's end of the pipe."""

    def __init__(self, shm_prefix: str, run_dir: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, shm_prefix, str(run_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def watch(self, session: int) -> None:
        self._order(f"session {session}")

    def dismiss(self) -> None:
        """Only after the processes, the shared memory and the run folder are gone."""
        self._order("done")
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None
        # Somebody ended the guardian: a launch works without it, and does its own cleaning.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def _members(session: int, run_dir: str) -> list[int]:
    """Running processes of the launch, read from /proc."""
    mark = f"SEEKSERVE_RUN_DIR={run_dir}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            # The name in brackets may hold anything; state and session come after the last bracket.
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            is_member = int(fields[3]) == session or mark in (entry / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError, ValueError):
            continue
        if is_member and fields[0] != b"Z":
            found.append(int(entry.name))
    return found


def _kill(session: int, run_dir: str) -> None:
    for _ in range(100):
        members = _members(session, run_dir)
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main(shm_prefix: str, run_dir: str) -> None:
    for quiet in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(quiet, signal.SIG_IGN)
    session = 0
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        if word == "done":
            return
        if word == "session":
            session = int(number)
    if session > 1:
        _kill(session, run_dir)
    for path in Path("/dev/shm").glob(shm_prefix + "*"):
        path.unlink(missing_ok=True)
    shutil.rmtree(run_dir, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
