"""The launch record: one JSON file that says what runs where, for `status`, `stop` and the detaching parent.

Written whole or not at all, readable by its owner only. It is removed after a clean stop; a failed launch leaves it,
with the reason in it. A process is meant only when its start time agrees too, since process ids are reused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seekserve.errors import InputError

__all__ = ["LaunchRecord", "default_record_path", "find_records", "process_started_s", "records_dir"]

# What records of every version have, and hardly any other file has together.
_MARKS = frozenset({"schema_version", "id", "pid", "run_dir", "shm_prefix"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    schema_version: int = 1
    id: str
    paths: tuple[str, ...]
    """Where this record is kept: the state folder, and the user's --pid-file."""
    state: str
    """starting, ready, restarting, stopping or failed"""
    pid: int
    """The supervising process."""
    pid_started_s: float
    server_pid: int | None
    """tritonserver, and the id of its process group."""
    server_started_s: float | None
    repository: str
    models: tuple[str, ...]
    http_url: str
    grpc_url: str
    metrics_url: str
    shm_prefix: str
    run_dir: str
    log_file: str
    exit_timeout_s: int
    restarts: int
    started_s: float
    """Unix time."""
    ready_s: float | None = None
    """Seconds from start to the first generation, of the latest start."""
    error: str | None = None
    plan: str = "single"
    """What runs, in words."""
    world_size: int = 1
    """Ranks of all engines together."""

    def write(self) -> None:
        """To every place; then raises the OSError of the first that failed, if any did."""
        _each(self.paths, self._write)

    def remove(self) -> None:
        """From every place; raises as `write` does."""
        _each(self.paths, lambda path: path.unlink(missing_ok=True))

    def _write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
            file.write("\n")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> LaunchRecord:
        record = cls.read_if_there(path)
        if record is None:
            raise InputError(
                f"launch record {path} does not exist: nothing was launched with it, or it was stopped cleanly"
            )
        return record

    @classmethod
    def read_if_there(cls, path: Path) -> LaunchRecord | None:
        """As `read`, in one look: the launch may remove its record at any moment."""
        try:
            data: Any = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"launch record {path} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not a launch record: it is not JSON ({error})") from error
        if not (isinstance(data, dict) and data.keys() >= _MARKS):
            raise InputError(f"{path} is not a launch record", hint="name the file that `seekserve launch` wrote")
        if data["schema_version"] != 1:
            raise InputError(
                f"launch record {path}: schema version {data['schema_version']}, this toolkit reads 1",
                hint="use the seekserve version that started it",
            )
        try:
            return cls(**{**data, "models": tuple(data["models"]), "paths": tuple(data["paths"])})
        except (TypeError, KeyError) as error:
            raise InputError(f"launch record {path} is damaged: {error}") from error

    def supervisor_is_alive(self) -> bool:
        return _is_alive(self.pid, self.pid_started_s)

    def server_is_alive(self) -> bool:
        return self.server_pid is not None and _is_alive(self.server_pid, self.server_started_s)


def _each(paths: Iterable[str], act: Callable[[Path], None]) -> None:
    failures = []
    for path in paths:
        try:
            act(Path(path))
        except OSError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def process_started_s(pid: int) -> float | None:
    """None when there is no such process, or only its zombie."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def _is_alive(pid: int, started_s: float | None) -> bool:
    now_s = process_started_s(pid)
    # The boot time that both are computed from is rounded; two processes of one id are never a second apart.
    return now_s is not None and started_s is not None and abs(now_s - started_s) < 1.0


def records_dir(env: Mapping[str, str]) -> Path:
    state = env.get("XDG_STATE_HOME")
    base = Path(state) if state else Path(env.get("HOME") or str(Path.home())) / ".local" / "state"
    return base / "seekserve" / "launches"


def default_record_path(launch_id: str, env: Mapping[str, str]) -> Path:
    return records_dir(env) / f"{launch_id}.json"


def find_records(env: Mapping[str, str]) -> list[Path]:
    folder = records_dir(env)
    return sorted(folder.glob("[!.]*.json")) if folder.is_dir() else []
