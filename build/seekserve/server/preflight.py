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
from seekserve.server.plan_facts import (
    is_openai_frontend,
    machine_facts,
    plan_wish,
    ready_timeout,
    worker_python_problem,
)
from seekserve.server.plans import LaunchPlan, PlanWish, choose, make_plan
from seekserve.server.plans.choose import Choice
from seekserve.server.plans.need import Need
from seekserve.server.plans.read import read_needs
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
    """Of the tritonserver that listens."""
    plan: LaunchPlan
    ready_timeout_s: float
    ready_timeout_source: str
    run_dir: Path
    probe_key: str = field(repr=False)
    http_url: str
    grpc_address: str
    """HOST:PORT, as gRPC clients take it."""
    metrics_url: str


def new_launch_id() -> str:
    return secrets.token_hex(4)


def prepare(options: LaunchOptions, env: Mapping[str, str], launch_id: str, *, for_show: bool = False) -> Prepared:
    """InputError, or ConflictError when only ports are in the way; the message lists all problems.

    `for_show`: what keeps this machine from running the plan stays in `plan.blockers` and is no error.
    """
    server, problems = _find(options, env)
    models, model_problems = read_models(options.repository, only=options.models)
    problems += model_problems
    problems += check_backends(options.backend_dir, server, needs_ours=any(model.is_ours for model in models))
    problems += _unwritable(options, env, launch_id)
    layout, layout_problems = _lay_out(options, env, server, models)
    problems += layout_problems
    wanted = Ports(http=options.http_port, grpc=options.grpc_port, metrics=options.metrics_port)
    foreign_host = host_problem(options.host)
    if foreign_host is not None:
        raise InputError(problems_text("cannot launch", [*problems, foreign_host]))
    ports, port_problems = resolve_ports(options.host, wanted)
    if problems or port_problems:
        kind = InputError if problems else ConflictError
        raise kind(problems_text("cannot launch", problems + port_problems))
    assert server is not None
    prepared = _assemble(options, env, launch_id, server, models, ports, layout)
    if prepared.plan.blockers and not for_show:
        raise InputError(problems_text("cannot launch", prepared.plan.blockers))
    return prepared


def _find(options: LaunchOptions, env: Mapping[str, str]) -> tuple[Tritonserver | None, list[str]]:
    try:
        return find_tritonserver(options.tritonserver, env), []
    except InputError as error:
        return None, [f"{error.message}; {error.hint}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    needs: tuple[Need, ...]
    wish: PlanWish
    choice: Choice


def _lay_out(
    options: LaunchOptions, env: Mapping[str, str], server: Tritonserver | None, models: tuple[ServedModel, ...]
) -> tuple[_Layout, list[str]]:
    wish, problems = plan_wish(options)
    needs, need_problems = read_needs(models)
    frontend = server is not None and is_openai_frontend(server.binary)
    choice, choice_problems = choose(needs, wish, env, is_openai_frontend=frontend)
    if frontend:
        choice_problems.append(f"{options.tritonserver} is Triton's OpenAI frontend; name the tritonserver binary")
    # Without hosts or needs that can be read, what follows from them would only confuse.
    problems += need_problems or ([] if problems else choice_problems)
    return _Layout(needs=needs, wish=wish, choice=choice), problems


def _unwritable(options: LaunchOptions, env: Mapping[str, str], launch_id: str) -> list[str]:
    """The record is always in the state folder too, and so is the log unless the user names another place."""
    places = [
        ("the launch record (in XDG_STATE_HOME)", default_record_path(launch_id, env), True),
        ("--pid-file", options.pid_file, True),
        ("--log-file", options.log_file, False),
        ("--shared-dir", options.shared_dir and options.shared_dir / f"seekserve-{launch_id}", True),
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
    layout: _Layout,
) -> Prepared:
    run_dir = (options.shared_dir or Path(tempfile.gettempdir())).absolute() / f"seekserve-{launch_id}"
    ready_timeout_s, source = ready_timeout(options.ready_timeout_s, layout.needs)
    probe_key = secrets.token_urlsafe(24)
    composed = options.backend_dir.resolve() if has_runtime(options.backend_dir) else run_dir / "backends"
    command = ServerCommand(
        binary=server.binary.absolute(),
        # A link may lead elsewhere on another node, where only its own name is the same.
        repository=options.repository.resolve() if layout.choice.nodes == 1 else options.repository.absolute(),
        backend_dir=composed,
        models=tuple(model.name for model in models),
        host=options.host,
        ports=ports,
        shm_prefix=prefix_of(launch_id),
        admin_key=secrets.token_urlsafe(24),
        exit_timeout_s=options.exit_timeout_s,
        ready_timeout_s=ready_timeout_s,
        log_verbose=options.log_verbose,
        has_gpu=Path("/dev/nvidiactl").exists(),
        configs_complete=all(model.is_ours for model in models),
    )
    changes = build_env_changes(
        env,
        run_dir=run_dir,
        probe_key=probe_key,
        library_dirs=server.library_dirs,
        python_bin_dir=_python_bin_dir(server, composed),
        grpc_address=f"{url_host(reachable_host(options.host))}:{ports.grpc}",
    )
    if layout.needs:
        problem = worker_python_problem({**env, **changes}, _stub_minor(server, composed))
        if problem is not None:
            raise InputError(problems_text("cannot launch", [problem]))
    facts = machine_facts(env, layout.wish)
    host = url_host(reachable_host(options.host))
    return Prepared(
        id=launch_id,
        server=server,
        models=models,
        ports=ports,
        command=command,
        plan=make_plan(layout.choice, command, changes, wish=layout.wish, facts=facts, run_dir=run_dir),
        ready_timeout_s=ready_timeout_s,
        ready_timeout_source=source,
        run_dir=run_dir,
        probe_key=probe_key,
        http_url=f"http://{host}:{ports.http}",
        grpc_address=f"{host}:{ports.grpc}",
        metrics_url=f"http://{host}:{ports.metrics}/metrics",
    )


def _python_bin_dir(server: Tritonserver, backend_dir: Path) -> Path | None:
    """The running Python's folder, when the stub is of the same version; another stub must find its own."""
    return Path(sys.executable).parent if _stub_minor(server, backend_dir) == running_minor() else None


def _stub_minor(server: Tritonserver, backend_dir: Path) -> str | None:
    stub = backend_dir / "python" / "triton_python_backend_stub"
    stub = stub if stub.is_file() else server.stub or stub
    return stub_python_minor(stub) if stub.is_file() and os.access(stub, os.R_OK) else None
