"""`seekserve stop`: ends a launch by its record, and cleans up after one whose supervising process is gone."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seekserve.errors import InputError
from seekserve.server.cleanup import clean_after
from seekserve.server.record import LaunchRecord, default_record_path, find_records, process_started_s

if TYPE_CHECKING:
    import psutil

__all__ = ["StopOutcome", "choose_record", "stop_launch"]

# Beyond the server's own exit timeout: the supervisor's margin, the kill of the group, the cleaning.
_MARGIN_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOutcome:
    id: str
    is_clean: bool
    text: str


def choose_record(*, pid_file: Path | None, launch_id: str | None, env: Mapping[str, str]) -> Path:
    """The record that the user means; without a choice, the only one there is."""
    if pid_file is not None and launch_id is not None:
        raise InputError("--pid-file and --id were both given; one of them says which launch")
    if pid_file is not None:
        return pid_file
    if launch_id is not None:
        return default_record_path(launch_id, env)
    found = find_records(env)
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(
            f"no launch is recorded in {default_record_path('ID', env).parent}",
            hint="name its record with --pid-file, or start one with `seekserve launch`",
        )
    raise InputError(f"{len(found)} launches are recorded: {', '.join(path.stem for path in found)}; choose with --id")


def stop_launch(path: Path, *, timeout_s: float | None = None) -> StopOutcome:
    """Asks the supervising process to stop and waits for it; kills it when it does not within the time."""
    record = LaunchRecord.read(path)
    if not record.supervisor_is_alive():
        return _clean_up(record, "its supervising process was gone")
    was_killed = not _end(record, record.exit_timeout_s + _MARGIN_S if timeout_s is None else timeout_s)
    if was_killed:
        return _clean_up(record, "it did not stop in time and was killed")
    left = LaunchRecord.read_if_there(path)
    if left is not None:
        return _clean_up(left, "it did not end cleanly")
    return StopOutcome(id=record.id, is_clean=True, text=f"launch {record.id} stopped cleanly")


def _end(record: LaunchRecord, timeout_s: float) -> bool:
    """True when SIGTERM was enough."""
    import psutil

    try:
        supervisor = psutil.Process(record.pid)
        supervisor.send_signal(signal.SIGTERM)
        _wait(supervisor, timeout_s)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        supervisor.kill()
        _wait(supervisor, 10.0)
        return False
    return True


def _wait(process: psutil.Process, timeout_s: float) -> None:
    """As psutil's own wait, but content with a zombie: in a container nobody may reap it."""
    import psutil

    deadline_s = time.monotonic() + timeout_s
    while process_started_s(process.pid) is not None:
        if time.monotonic() > deadline_s:
            raise psutil.TimeoutExpired(timeout_s, process.pid)
        time.sleep(0.05)


def _clean_up(record: LaunchRecord, why: str) -> StopOutcome:
    cleaned = clean_after(record)
    reason = f": {record.error}" if record.error else ""
    return StopOutcome(id=record.id, is_clean=False, text=f"launch {record.id}: {why}{reason}; {cleaned}")
