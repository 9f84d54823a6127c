"""Writes a choice out: the argument list of every tritonserver and of what starts them, scripts, environment. Pure.

Argument lists only; the one text that a shell reads is a script of the run folder, every word of it quoted, because
trtllm-llmapi-launch splits its command at blanks and srun starts all ranks by one command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from seekserve.server.command import ServerCommand, build_argv
from seekserve.server.plans import mpi, slurm
from seekserve.server.plans.choose import Choice
from seekserve.server.plans.hosts import place
from seekserve.server.plans.plan import LaunchPlan, Rank
from seekserve.server.plans.scripts import RANK_SCRIPT, SERVE_SCRIPT, rank_script, serve_script
from seekserve.server.plans.wish import MachineFacts, PlanWish

__all__ = ["LLMAPI_LAUNCH", "make_plan"]

LLMAPI_LAUNCH = "trtllm-llmapi-launch"
# The C++ backend's own launch script sets these beside several engines in one process.
_SEVERAL_ENGINES = ("--pinned-memory-pool-byte-size=0", "--enable-peer-access=false")


def make_plan(
    choice: Choice,
    command: ServerCommand,
    env_changes: Mapping[str, str],
    *,
    wish: PlanWish,
    facts: MachineFacts,
    run_dir: Path,
) -> LaunchPlan:
    """`command` is the serving tritonserver's; those of other ranks are derived from it."""
    servers = _servers(choice, command)
    env = {**env_changes, **_own_variables(choice, wish)}
    files = _files(choice, servers)
    argv = _argv(choice, servers, env, facts, run_dir)
    return LaunchPlan(
        kind=choice.kind,
        launcher=choice.launcher,
        world_size=choice.world_size,
        product=choice.product,
        hosts=choice.hosts,
        argv=argv,
        servers=servers,
        files=files,
        env=env,
        clean_argv=_clean_argv(choice, command.shm_prefix, facts),
        why=choice.why,
        blockers=tuple(_blockers(choice, facts, run_dir)),
    )


def _servers(choice: Choice, command: ServerCommand) -> tuple[Rank, ...]:
    if choice.kind != "leader":
        argv = build_argv(command)
        if choice.kind == "orchestrator":
            argv += [flag for flag in _SEVERAL_ENGINES if flag not in argv]
        host = choice.hosts[0].name if choice.hosts else "this node"
        return (_rank(0, host, command, argv),)
    assert choice.need is not None
    hosts = place(choice.hosts, choice.world_size) if choice.hosts else ("chosen by Slurm",) * choice.world_size
    ranks = []
    for number, host in enumerate(hosts):
        own = dataclasses.replace(command, shm_prefix=f"{command.shm_prefix}r{number}_")
        if number > 0:
            own = dataclasses.replace(own, listens=False, models=(choice.need.model,))
        ranks.append(_rank(number, host, own, build_argv(own)))
    return tuple(ranks)


def _rank(number: int, host: str, command: ServerCommand, argv: list[str]) -> Rank:
    return Rank(
        number=number,
        host=host,
        listens=command.listens,
        models=command.models,
        shm_prefix=command.shm_prefix,
        argv=tuple(argv),
    )


def _own_variables(choice: Choice, wish: PlanWish) -> dict[str, str]:
    own = {}
    if wish.mpi_interface is not None:
        own["OMPI_MCA_btl_tcp_if_include"] = wish.mpi_interface
    if choice.kind == "orchestrator":
        own |= {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1"}
    return own


def _files(choice: Choice, servers: tuple[Rank, ...]) -> dict[str, str]:
    if choice.kind == "llmapi":
        return {SERVE_SCRIPT: serve_script(servers[0].argv)}
    if choice.launcher == "srun":
        return {RANK_SCRIPT: rank_script([rank.argv for rank in servers])}
    return {}


def _argv(
    choice: Choice, servers: tuple[Rank, ...], env: Mapping[str, str], facts: MachineFacts, run_dir: Path
) -> tuple[str, ...]:
    if choice.launcher is None:
        return servers[0].argv
    program = facts.programs.get(choice.launcher, choice.launcher)
    llmapi = (facts.programs.get(LLMAPI_LAUNCH, LLMAPI_LAUNCH), str(run_dir / SERVE_SCRIPT))
    if choice.launcher == "srun":
        command = llmapi if choice.kind == "llmapi" else (str(run_dir / RANK_SCRIPT),)
        return slurm.srun_argv(program, nodes=choice.nodes, ranks=choice.world_size, command=command)
    exported = mpi.exported(env, facts.env) if choice.nodes > 1 else ()
    head, paths = mpi.head(program, is_root=facts.is_root), mpi.own_paths(env, facts.env)
    if choice.kind == "llmapi":
        return (*head, *mpi.segment(choice.hosts, choice.world_size, exported, (*paths, *llmapi)))
    slots = {host.name: host for host in choice.hosts}
    segments = [mpi.segment((slots[rank.host],), 1, exported, (*paths, *rank.argv)) for rank in servers]
    return (*head, *mpi.joined(segments))


def _clean_argv(choice: Choice, prefix: str, facts: MachineFacts) -> tuple[str, ...]:
    if choice.launcher is None or choice.nodes == 1:
        return ()
    program = facts.programs.get(choice.launcher, choice.launcher)
    remove = ("/bin/sh", "-c", 'rm -f /dev/shm/"$1"*', "sh", prefix)
    if choice.launcher == "srun":
        return slurm.clean_argv(program, nodes=choice.nodes, command=remove)
    once = [dataclasses.replace(host, slots=1) for host in choice.hosts]
    return (*mpi.head(program, is_root=facts.is_root), *mpi.segment(once, len(once), (), remove))


def _blockers(choice: Choice, facts: MachineFacts, run_dir: Path) -> list[str]:
    if choice.launcher is None:
        return []
    wanted = [choice.launcher] + ([LLMAPI_LAUNCH] if choice.kind == "llmapi" else [])
    remedies = {
        "mpirun": "install Open MPI (Debian: openmpi-bin), or run inside an image that has it",
        "srun": "run inside a Slurm job",
        LLMAPI_LAUNCH: "it comes with TensorRT-LLM; run inside an image that has it",
    }
    blockers = [f"{name} is not on PATH; {remedies[name]}" for name in wanted if name not in facts.programs]
    if choice.hosts and choice.hosts[0].name not in facts.own_hosts:
        blockers.append(
            f"rank 0 is to run on {choice.hosts[0].name}, which is not this machine: launch it there, since it is "
            "watched and asked from where it listens"
        )
    if choice.launcher == "srun":
        blockers += slurm.blockers(facts.env, nodes=choice.nodes, ranks=choice.world_size)
    if choice.kind == "llmapi" and any(blank in str(run_dir) for blank in " \t"):
        blockers.append(f"{LLMAPI_LAUNCH} splits at blanks, and the run folder {run_dir} holds one; use --shared-dir")
    return blockers
