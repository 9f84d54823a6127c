"""What a launch leaves when its supervising process is gone: processes, shared memory, run folder, record.

Only what provably belongs to the launch is touched: processes that carry its run folder in their environment, files
under its own prefix, the folder named after its id.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import InputError, TargetExists
from seekserve.server import shm
from seekserve.server.record import LaunchRecord

__all__ = ["Cleaned", "claim_record_path", "clean_after", "processes_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    processes: int
    shm_files: int

    def __str__(self) -> str:
        return f"{self.processes} leftover processes ended, {self.shm_files} shared-memory files removed"


def processes_of(run_dir: str) -> list[int]:
    """Living processes that were started with this run folder."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SEEKSERVE_RUN_DIR") == run_dir and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def clean_after(record: LaunchRecord) -> Cleaned:
    """Call only when the supervising process is dead. The record goes too."""
    import psutil

    prefix = shm.prefix_of(record.id)
    if record.shm_prefix != prefix or Path(record.run_dir).name != f"seekserve-{record.id}":
        raise InputError(
            f"launch record {record.id}: prefix {record.shm_prefix!r} or run folder {record.run_dir!r} "
            f"does not belong to the id; nothing was removed"
        )
    members = [psutil.Process(pid) for pid in processes_of(record.run_dir) if psutil.pid_exists(pid)]
    for member in members:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(members, timeout=5.0)
    files = shm.clean(prefix)
    shutil.rmtree(record.run_dir, ignore_errors=True)
    record.remove()
    return Cleaned(processes=len(members), shm_files=files)


def claim_record_path(path: Path) -> Cleaned | None:
    """Makes sure that `path` may be written: free, or the record of a launch that is over (then cleaned up after)."""
    if not path.exists():
        return None
    try:
        record = LaunchRecord.read(path)
    except InputError as error:
        raise TargetExists(
            f"{path} exists and is not a launch record; it is left alone", hint="choose another --pid-file"
        ) from error
    if record.supervisor_is_alive():
        raise TargetExists(
            f"{path}: launch {record.id} is running (pid {record.pid})",
            hint=f"`seekserve stop --pid-file {path}` first, or choose another --pid-file",
        )
    return clean_after(record)
