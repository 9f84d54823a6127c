"""The facts that the checks read: plain data, so that a check can be tried with any machine.

None means "could not be found out" or "not there", as each field says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Gpu", "Machine", "ServerFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    index: int
    name: str
    driver: str
    memory_mib: int | None
    is_mig: bool
    compute_capability: str | None
    """As nvidia-smi prints it: `9.0`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    binary: str
    found_by: str
    version: str | None
    """Triton's own number, such as 2.51.0."""
    has_python_backend: bool
    stub: str | None
    stub_python: str | None
    """Minor version that the stub was built for."""
    needs_libpython: bool
    libpython_dir: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    python: tuple[int, int, int]
    python_executable: str
    numpy: str | None
    """Version that the stub would import; None: not installed."""
    server: ServerFacts | None
    server_problem: str = ""
    """Why there is no server."""
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    shm_leftovers: tuple[str, ...] = ()
    """Region files that no running process names."""
    orphan_stubs: tuple[int, ...] = ()
    """Stubs whose tritonserver is gone."""
    open_files_limit: int | None = None
    locked_memory_limit_bytes: int | None = None
    """None: unlimited."""
    busy_ports: tuple[int, ...] = ()
    has_nvidia_smi: bool = False
    nvidia_smi_error: str = ""
    gpus: tuple[Gpu, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    mpirun: str | None = None
    """First line of `mpirun --version`; None: not installed."""
    images: tuple[str, ...] | None = None
    """Triton and TensorRT-LLM images of the local container engine; None: there is no such engine."""
    state_free_bytes: int | None = None
    temporary_free_bytes: int | None = None
