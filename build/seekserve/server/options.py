"""What the user of a launch may choose, each default written once (the command line reads them from here)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

__all__ = ["DEFAULT_PORTS", "LAUNCHERS", "RANKS", "LaunchOptions", "is_loopback"]

DEFAULT_PORTS = (8000, 8001, 8002)
"""HTTP, gRPC, metrics: Triton's own."""

RANKS = ("auto", "single", "mpi", "orchestrator")
LAUNCHERS = ("mpirun", "srun")

# JSON has no tuples and no paths.
_PATHS = frozenset({"repository", "backend_dir", "tritonserver", "pid_file", "log_file", "hostfile", "shared_dir"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    repository: Path
    """A rendered model repository: one folder for each model."""
    backend_dir: Path
    """Where `install-backend` put `seekserve/`; it may hold other backends too."""
    models: tuple[str, ...] | None = None
    """Those of the repository that are loaded; None: all."""
    tritonserver: Path | None = None
    """The binary; None: look in the usual places."""
    host: str = "127.0.0.1"
    """Address that HTTP, gRPC and metrics bind to."""
    http_port: int = DEFAULT_PORTS[0]
    grpc_port: int = DEFAULT_PORTS[1]
    metrics_port: int = DEFAULT_PORTS[2]
    """0 picks a free port, for each of the three."""
    pid_file: Path | None = None
    """A second place for the launch record, besides the state folder."""
    log_file: Path | None = None
    """tritonserver's output; None: a file in the state folder, removed after a run without trouble."""
    log_verbose: int = 0
    """tritonserver's own verbosity level."""
    ready_timeout_s: float | None = None
    """From start to the first generation; None: as long as the bundles say that loading their weights may take."""
    exit_timeout_s: int = 30
    """How long a stopping server waits for requests in flight."""
    poll_s: float = 0.5
    """Pause between two looks at the server."""
    stall_timeout_s: float = 4.0
    """A stub whose heartbeat stands still this long is stuck."""
    engine_stall_s: float = 60.0
    """An engine loop that has not gone round for this long is stuck."""
    server_stall_s: float = 30.0
    """A tritonserver that does not answer its liveness endpoint this long is stuck."""
    max_restarts: int = 3
    restart_window_s: float = 600.0
    """More than `max_restarts` within this window ends the launch."""
    ranks: str = "auto"
    """One of RANKS: how the ranks of an engine on several GPUs are run."""
    launcher: str = "mpirun"
    """One of LAUNCHERS: what starts ranks where tritonserver alone does not."""
    hosts: str | None = None
    """`a:8,b:8`: hosts with their slots, this one first; None: this machine."""
    hostfile: Path | None = None
    """The same from a file of Open MPI's form."""
    world_size: int | None = None
    """A number of ranks to check against; the engines alone decide it."""
    mpi_interface: str | None = None
    """Network interface of MPI's own TCP traffic."""
    shared_dir: Path | None = None
    """Folder that every node sees, for the run folder; needed with several nodes."""

    def to_json(self) -> dict[str, Any]:
        return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LaunchOptions:
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {
            key: Path(value) if key in _PATHS and value is not None else value for key, value in data.items()
        }
        assert set(values) <= known, f"unknown launch options: {sorted(set(values) - known)}"
        if values.get("models") is not None:
            values["models"] = tuple(values["models"])
        return cls(**values)


def is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
