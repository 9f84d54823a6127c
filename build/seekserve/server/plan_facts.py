"""What a plan wants to know: the user's options as a wish, and the facts of this machine. Looks, starts nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from seekserve.errors import InputError
from seekserve.server.options import LAUNCHERS, LaunchOptions
from seekserve.server.plans.hosts import Host, is_loopback_name, parse_hosts, read_hostfile
from seekserve.server.plans.make import LLMAPI_LAUNCH
from seekserve.server.plans.need import Need
from seekserve.server.plans.wish import MachineFacts, PlanWish
from seekserve.server.ports import host_problem

__all__ = ["is_openai_frontend", "machine_facts", "plan_wish", "ready_timeout", "worker_python_problem"]

_DEFAULT_READY_S = 600.0


def plan_wish(options: LaunchOptions) -> tuple[PlanWish, list[str]]:
    hosts, problems = _hosts(options)
    wish = PlanWish(
        ranks=options.ranks,
        launcher=options.launcher,
        hosts=hosts,
        world_size=options.world_size,
        mpi_interface=options.mpi_interface,
        shared_dir=options.shared_dir,
    )
    return wish, problems


def _hosts(options: LaunchOptions) -> tuple[tuple[Host, ...], list[str]]:
    if options.hosts is not None and options.hostfile is not None:
        return (), ["--hosts and --hostfile were both given; one of them says where ranks run"]
    try:
        if options.hosts is not None:
            return parse_hosts(options.hosts), []
        return (() if options.hostfile is None else read_hostfile(options.hostfile)), []
    except InputError as error:
        return (), [error.message]


def machine_facts(env: Mapping[str, str], wish: PlanWish) -> MachineFacts:
    found = {name: shutil.which(name, path=env.get("PATH", "")) for name in (*LAUNCHERS, LLMAPI_LAUNCH)}
    hosts = {host.name for host in wish.hosts} | {"localhost"}
    return MachineFacts(
        is_root=os.geteuid() == 0,
        programs={name: path for name, path in found.items() if path is not None},
        own_hosts=frozenset(name for name in hosts if is_loopback_name(name) or host_problem(name) is None),
        env=env,
    )


def ready_timeout(asked_s: float | None, needs: Sequence[Need]) -> tuple[float, str]:
    """(seconds, why)"""
    if asked_s is not None:
        return asked_s, "--ready-timeout-s"
    longest = max(needs, key=lambda need: need.start_timeout_s, default=None)
    if longest is None or longest.start_timeout_s <= _DEFAULT_READY_S:
        return _DEFAULT_READY_S, "the default"
    return longest.start_timeout_s, f"sized from the weights of model {longest.model!r}"


def is_openai_frontend(binary: Path) -> bool:
    """Triton's own: a Python program that takes other arguments."""
    return "openai_frontend" in binary.parts or (binary.suffix == ".py" and "openai" in str(binary).lower())


def worker_python_problem(env: Mapping[str, str], stub_minor: str | None) -> str | None:
    """Workers that TensorRT-LLM spawns run PATH's python3, and load what the stub has loaded: one minor version."""
    found = shutil.which("python3", path=env.get("PATH", os.defpath))
    match = re.search(r"python(3\.\d+)$", str(Path(found).resolve())) if found is not None else None
    if stub_minor is None or match is None or match.group(1) == stub_minor:
        return None
    return (
        f"the Python stub is of Python {stub_minor}, PATH's python3 ({found}) is {match.group(1)}, and TensorRT-LLM "
        f"starts its workers with the latter; put a python3 of {stub_minor} first on PATH"
    )
