"""Cleans up after a launch whose own process was killed outright; a separate small process, standard library only.

It reads orders from a pipe that only the launch holds: `group N` (end this process group), `done` (nothing to do).
When the pipe closes without `done`, it ends the group, removes the launch's shared memory and its run folder.
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

    def watch(self, group: int) -> None:
        self._order(f"group {group}")

    def dismiss(self) -> None:
        """Only after the group, the shared memory and the run folder are gone."""
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


def _kill(group: int) -> None:
    for _ in range(50):
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.02)


def main(shm_prefix: str, run_dir: str) -> None:
    for quiet in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(quiet, signal.SIG_IGN)
    group = 0
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        if word == "done":
            return
        if word == "group":
            group = int(number)
    if group > 1:
        _kill(group)
    for path in Path("/dev/shm").glob(shm_prefix + "*"):
        path.unlink(missing_ok=True)
    shutil.rmtree(run_dir, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
