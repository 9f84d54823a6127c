"""Everything that can be known to be wrong before tritonserver starts, in one report; and what the start needs to know.

Leaves nothing on disk and starts nothing.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seekserve.errors import ConflictError, InputError
from seekserve.output import problems_text
from seekserve.server.backends import check_backends, has_runtime
from seekserve.server.command import ServerCommand, build_env_changes
from seekserve.server.find import Tritonserver, find_tritonserver, running_minor, stub_python_minor
from seekserve.server.models import ServedModel, read_models
from seekserve.server.options import LaunchOptions
from seekserve.server.ports import Ports, host_problem, reachable_host, resolve_ports, url_host
from seekserve.server.record import default_record_path
from seekserve.server.shm import prefix_of
from seekserve.server.writable import write_problem

__all__ = ["Prepared", "new_launch_id", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A launch that nothing speaks against."""

    id: str
    server: Tritonserver
    models: tuple[ServedModel, ...]
    ports: Ports
    command: ServerCommand
    env_changes: Mapping[str, str] = field(repr=False)
    run_dir: Path
    probe_key: str = field(repr=False)
    http_url: str
    grpc_address: str
    """HOST:PORT, as gRPC clients take it."""
    metrics_url: str


def new_launch_id() -> str:
    return secrets.token_hex(4)


def prepare(options: LaunchOptions, env: Mapping[str, str], launch_id: str) -> Prepared:
    """InputError, or ConflictError when only ports are in the way; the message lists all problems."""
    server, problems = _find(options, env)
    models, model_problems = read_models(options.repository, only=options.models)
    problems += model_problems
    problems += check_backends(options.backend_dir, server, needs_ours=any(model.is_ours for model in models))
    problems += _unwritable(options, env, launch_id)
    wanted = Ports(http=options.http_port, grpc=options.grpc_port, metrics=options.metrics_port)
    foreign_host = host_problem(options.host)
    if foreign_host is not None:
        raise InputError(problems_text("cannot launch", [*problems, foreign_host]))
    ports, port_problems = resolve_ports(options.host, wanted)
    if problems or port_problems:
        kind = InputError if problems else ConflictError
        raise kind(problems_text("cannot launch", problems + port_problems))
    assert server is not None
    return _assemble(options, env, launch_id, server, models, ports)


def _find(options: LaunchOptions, env: Mapping[str, str]) -> tuple[Tritonserver | None, list[str]]:
    try:
        return find_tritonserver(options.tritonserver, env), []
    except InputError as error:
        return None, [f"{error.message}; {error.hint}"]


def _unwritable(options: LaunchOptions, env: Mapping[str, str], launch_id: str) -> list[str]:
    """The record is always in the state folder too, and so is the log unless the user names another place."""
    places = [
        ("the launch record (in XDG_STATE_HOME)", default_record_path(launch_id, env), True),
        ("--pid-file", options.pid_file, True),
        ("--log-file", options.log_file, False),
    ]
    problems = [
        write_problem(path, setting, is_renamed_into_place=renamed)
        for setting, path, renamed in places
        if path is not None
    ]
    return [problem for problem in problems if problem is not None]


def _assemble(
    options: LaunchOptions,
    env: Mapping[str, str],
    launch_id: str,
    server: Tritonserver,
    models: tuple[ServedModel, ...],
    ports: Ports,
) -> Prepared:
    run_dir = Path(tempfile.gettempdir()) / f"seekserve-{launch_id}"
    probe_key = secrets.token_urlsafe(24)
    composed = options.backend_dir.resolve() if has_runtime(options.backend_dir) else run_dir / "backends"
    command = ServerCommand(
        binary=server.binary,
        repository=options.repository.resolve(),
        backend_dir=composed,
        models=tuple(model.name for model in models),
        host=options.host,
        ports=ports,
        shm_prefix=prefix_of(launch_id),
        admin_key=secrets.token_urlsafe(24),
        exit_timeout_s=options.exit_timeout_s,
        ready_timeout_s=options.ready_timeout_s,
        log_verbose=options.log_verbose,
        has_gpu=Path("/dev/nvidiactl").exists(),
        configs_complete=all(model.is_ours for model in models),
    )
    host = url_host(reachable_host(options.host))
    return Prepared(
        id=launch_id,
        server=server,
        models=models,
        ports=ports,
        command=command,
        env_changes=build_env_changes(
            env,
            run_dir=run_dir,
            probe_key=probe_key,
            library_dirs=server.library_dirs,
            python_bin_dir=_python_bin_dir(server, composed),
        ),
        run_dir=run_dir,
        probe_key=probe_key,
        http_url=f"http://{host}:{ports.http}",
        grpc_address=f"{host}:{ports.grpc}",
        metrics_url=f"http://{host}:{ports.metrics}/metrics",
    )


def _python_bin_dir(server: Tritonserver, backend_dir: Path) -> Path | None:
    """The running Python's folder, when the stub is of the same version; another stub must find its own."""
    stub = backend_dir / "python" / "triton_python_backend_stub"
    stub = stub if stub.is_file() else server.stub or stub
    if not stub.is_file() or not os.access(stub, os.R_OK):
        return None
    return Path(sys.executable).parent if stub_python_minor(stub) == running_minor() else None
