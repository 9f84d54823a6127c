"""The processes of a launch as they are now, for a report: arguments and environment with secrets masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seekserve.server.record import LaunchRecord

from .masking import Masker

if TYPE_CHECKING:
    import psutil

__all__ = ["ProcessFacts", "launch_command", "launch_processes", "process_environments"]

# What changes how a server behaves; the rest of an environment is nobody's business.
_TELLING = (
    "SEEKSERVE_", "CUDA_", "NCCL_", "NVIDIA_", "TRT", "TLLM_", "OMPI_", "PMIX_", "UCX_", "SLURM_", "TRITON", "LD_",
    "PYTHON", "PATH", "HF_", "OMP_", "TORCH", "TOKENIZERS_", "KUBERNETES_",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    pid: int
    parent: int
    name: str
    status: str
    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    rss_bytes: int
    threads: int
    files: int | None
    """Open ones; None where it may not be looked at."""
    cpu_s: float

    def to_json(self, masker: Masker) -> dict[str, object]:
        telling = {name: value for name, value in self.env.items() if name.startswith(_TELLING)}
        return {
            "pid": self.pid,
            "parent": self.parent,
            "name": self.name,
            "status": self.status,
            "argv": masker.argv(self.argv),
            "environment": masker.env(telling),
            "rss_bytes": self.rss_bytes,
            "threads": self.threads,
            "open_files": self.files,
            "cpu_s": round(self.cpu_s, 1),
        }


def launch_processes(record: LaunchRecord) -> list[ProcessFacts]:
    """The supervising process, the server, and all their children, by id; empty when none is alive."""
    import psutil

    roots = [record.pid] if record.supervisor_is_alive() else []
    roots += [record.server_pid] if record.server_is_alive() and record.server_pid is not None else []
    found: dict[int, psutil.Process] = {}
    for pid in roots:
        try:
            root = psutil.Process(pid)
            found |= {process.pid: process for process in (root, *root.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    facts = (_facts(process) for _, process in sorted(found.items()))
    return [each for each in facts if each is not None]


def launch_command(record: LaunchRecord) -> list[str]:
    """How the same repository is started again, as far as the running server tells."""
    flag, command = "--backend-directory=", ["seekserve", "launch", record.repository]
    arguments = (argument for process in launch_processes(record) for argument in process.argv)
    folder = next((each.removeprefix(flag) for each in arguments if each.startswith(flag)), None)
    return command if folder is None else [*command, "--backend-dir", folder]


def process_environments(processes: Sequence[ProcessFacts]) -> list[Mapping[str, str]]:
    return [each.env for each in processes]


def _facts(process: psutil.Process) -> ProcessFacts | None:
    import psutil

    try:
        with process.oneshot():
            times = process.cpu_times()
            return ProcessFacts(
                pid=process.pid,
                parent=process.ppid(),
                name=process.name(),
                status=str(process.status()),
                argv=tuple(process.cmdline()),
                env=_environment(process),
                rss_bytes=process.memory_info().rss,
                threads=process.num_threads(),
                files=_files(process),
                cpu_s=times.user + times.system,
            )
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def _environment(process: psutil.Process) -> Mapping[str, str]:
    import psutil

    try:
        return dict(process.environ())
    except (psutil.AccessDenied, OSError):
        return {}


def _files(process: psutil.Process) -> int | None:
    import psutil

    try:
        return int(process.num_fds())
    except (psutil.AccessDenied, OSError):
        return None
