"""The argument list and the environment of one tritonserver, from data alone.

Safe by default: every endpoint binds to the chosen host only, models are those named, and the APIs that change the
server (repository, shared memory, trace, logging) answer only to the launch's own key. That key is an argument, since
Triton 24.10 takes it in no other form, and every user of the machine can read it in /proc/PID/cmdline: it keeps out
clients from elsewhere, not somebody with an account here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seekserve.server.ports import Ports

__all__ = ["ADMIN_HEADER", "RESTRICTED_APIS", "ServerCommand", "build_argv", "build_env_changes", "mask"]

ADMIN_HEADER = "seekserve-admin-key"
# Request class, tenant and deadline may come as headers; the backend reads them as request parameters.
FORWARDED_HEADERS = "(?i)^(x-request-type|x-tenant|x-deadline-ms)$"
RESTRICTED_APIS = ("model-repository", "shared-memory", "trace", "logging")
_NO_LISTENERS = ("--allow-http=false", "--allow-grpc=false", "--allow-metrics=false")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """Everything that the argument list depends on."""

    binary: Path
    repository: Path
    backend_dir: Path
    models: tuple[str, ...]
    host: str
    ports: Ports
    shm_prefix: str
    admin_key: str = field(repr=False)
    exit_timeout_s: int
    ready_timeout_s: float
    log_verbose: int
    has_gpu: bool
    configs_complete: bool
    """True where every model is ours: the renderer leaves nothing to complete, which saves a stub start per model."""
    listens: bool = True
    """False for a rank that only computes: it opens no port."""


def build_argv(command: ServerCommand) -> list[str]:
    argv = [
        str(command.binary),
        f"--model-repository={command.repository}",
        f"--backend-directory={command.backend_dir}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in command.models),
        *(_listeners(command) if command.listens else _NO_LISTENERS),
        f"--backend-config=python,shm-region-prefix-name={command.shm_prefix}",
        f"--backend-config=python,stub-timeout-seconds={math.ceil(command.ready_timeout_s)}",
        f"--exit-timeout-secs={command.exit_timeout_s}",
        f"--log-verbose={command.log_verbose}",
        "--log-format=ISO8601",
    ]
    if command.configs_complete:
        argv.append("--disable-auto-complete-config")
    if not command.has_gpu:
        # Otherwise the server logs errors about a driver that nobody expects here.
        argv += ["--allow-gpu-metrics=false", "--pinned-memory-pool-byte-size=0"]
    return argv


def _listeners(command: ServerCommand) -> list[str]:
    guard = f"{','.join(RESTRICTED_APIS)}:{ADMIN_HEADER}={command.admin_key}"
    ports = command.ports
    return [
        f"--http-address={command.host}",
        f"--http-port={ports.http}",
        f"--grpc-address={command.host}",
        f"--grpc-port={ports.grpc}",
        f"--metrics-address={command.host}",
        f"--metrics-port={ports.metrics}",
        f"--http-restricted-api={guard}",
        f"--grpc-restricted-protocol={guard}",
        f"--http-header-forward-pattern={FORWARDED_HEADERS}",
        f"--grpc-header-forward-pattern={FORWARDED_HEADERS}",
    ]


def build_env_changes(
    env: Mapping[str, str],
    *,
    run_dir: Path,
    probe_key: str,
    library_dirs: Sequence[Path],
    python_bin_dir: Path | None,
    grpc_address: str | None = None,
) -> dict[str, str]:
    """What is set on top of `env`; the Python stub inherits it.

    The running Python's own folder comes first on PATH: an embedded interpreter takes its prefix, its packages and
    `sys.executable` from the first `python3` there.
    """
    changes = {"SEEKSERVE_RUN_DIR": str(run_dir), "SEEKSERVE_PROBE_KEY": probe_key}
    if grpc_address is not None:
        # A model of ours in front of a stock one talks to it through the server's own door (see triton/loopback.py).
        changes["SEEKSERVE_GRPC_ADDRESS"] = grpc_address
    if python_bin_dir is not None:
        changes["PATH"] = _prepend([python_bin_dir], env.get("PATH", os.defpath))
    if library_dirs:
        changes["LD_LIBRARY_PATH"] = _prepend(library_dirs, env.get("LD_LIBRARY_PATH", ""))
    return changes


def _prepend(folders: Sequence[Path], existing: str) -> str:
    first = [str(folder) for folder in folders]
    return os.pathsep.join(first + [part for part in existing.split(os.pathsep) if part and part not in first])


def mask(text: str, secrets: Sequence[str]) -> str:
    """For printing: the keys of this launch stay out of logs and terminals."""
    for secret in secrets:
        text = text.replace(secret, "****")
    return text
