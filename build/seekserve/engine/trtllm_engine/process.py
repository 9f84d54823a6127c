"""One child of a build: its output in a file, its whole process group ended with it, its status never ignored.

TensorRT-LLM's tools start workers of their own, so the group is what counts: an interruption asks it to end and then
makes it, and what a failed tool has left behind goes too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

__all__ = ["Run", "describe_status", "log_tail", "run_child"]

_GRACE_S: Final = 10.0
_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 8192


class Run(Protocol):
    """Starts a child and waits for it; its exit status, negative when a signal ended it."""

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> int: ...


def run_child(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, keep_open: Collection[int] = ()
) -> int:
    """In a session of its own, so that Ctrl-C reaches this process alone and is passed on in order.

    `keep_open`: descriptors that the child inherits, such as a lock that shall live as long as it does.
    """
    with log.open("wb") as output:
        child = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )
        try:
            # Not reaped yet, so that the group's id is still its own when the rest of it is ended.
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        except BaseException:
            _signal_group(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_S)
            raise
        finally:
            _signal_group(child.pid, signal.SIGKILL)
            status = child.wait()
            _wait_for_group(child.pid)
    return status


def describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"{name}, out of memory?" if -status == signal.SIGKILL else name


def log_tail(log: Path, lines: int = 12) -> str:
    """The last lines, of which the last traceback is what explains most; empty when nothing was written."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.replace("\r", "\n").rstrip().splitlines()[-lines:])


def _wait_for_group(group: int) -> None:
    """A killed process may take a moment to be gone, and still holds its GPU memory and files until then."""
    deadline = time.monotonic() + _GRACE_S
    while _has_living(group) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _has_living(group: int) -> bool:
    """Zombies do not count: in a container nobody may reap them."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
