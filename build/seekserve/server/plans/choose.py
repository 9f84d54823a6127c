"""Which kind of plan serves a repository, on which hosts; or every reason why none does. Pure.

On one node the LLM API needs no launcher, since it spawns its own workers; the C++ backend's ranks are tritonservers of
their own, and over several nodes both need MPI. The number of ranks always comes from the engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seekserve.server.plans.combinations import refusal
from seekserve.server.plans.hosts import Host, is_loopback_name
from seekserve.server.plans.need import LEADER, SPAWNS, Need, ranks_text
from seekserve.server.plans.wish import PlanWish

__all__ = ["Choice", "choose"]

_GROUPS = ("leader", "llmapi")
_ADDRESSES = (
    "MASTER_ADDR",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
)
"""Variables by which ranks find each other; on the loopback they find nobody on another node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    kind: str
    launcher: str | None
    need: Need | None
    """The one whose ranks the launcher starts."""
    world_size: int
    product: str
    hosts: tuple[Host, ...]
    nodes: int
    why: tuple[str, ...]


def choose(
    needs: Sequence[Need], wish: PlanWish, env: Mapping[str, str], *, is_openai_frontend: bool = False
) -> tuple[Choice, list[str]]:
    """The choice, and a sentence for everything that speaks against it; with any, it is no plan to run."""
    wide = [need for need in needs if need.world_size > 1]
    kind, why, problems = _kind(wide, wish)
    nodes = len(wish.hosts) or max((need.nodes for need in wide), default=1)
    need = wide[0] if kind in _GROUPS and wide else None
    world_size, product = _world(needs, need)
    problems += _feature_problems(kind, wide, nodes, wish, is_openai_frontend=is_openai_frontend and world_size > 1)
    if wish.world_size is not None and wish.world_size != world_size:
        problems.append(f"--world-size {wish.world_size}: {product}, you asked for {wish.world_size}; leave it out")
    hosts = _hosts(kind, world_size, wish)
    problems += _host_problems(kind, need, world_size, nodes, wish)
    problems += _network_problems(nodes, world_size, wish, env)
    choice = Choice(
        kind=kind,
        launcher=wish.launcher if kind in _GROUPS else None,
        need=need,
        world_size=world_size,
        product=product,
        hosts=hosts,
        nodes=nodes,
        why=(*why, *_notes(kind, need, hosts, nodes, wish)),
    )
    return choice, problems


def _kind(wide: Sequence[Need], wish: PlanWish) -> tuple[str, list[str], list[str]]:
    """(kind, why, problems)"""
    leaders = [need for need in wide if need.starter == LEADER]
    spawning = [need for need in wide if need.starter == SPAWNS]
    if wish.ranks == "single":
        return "single", ["--ranks single"], [_never_meets(need) for need in leaders]
    if wish.ranks == "orchestrator":
        return "orchestrator", ["--ranks orchestrator"], _not_orchestrated(leaders, spawning)
    if wish.ranks == "mpi":
        problem = "--ranks mpi: every model of the repository runs in one rank, so MPI has none to start; leave it out"
        return _by_mpi(leaders, spawning), ["--ranks mpi"], [] if wide else [problem]
    if not wide:
        return "single", ["every engine runs in one rank"], []
    mixed = [f"models {_names(leaders)} and {_names(spawning)} start their ranks in different ways; launch them apart"]
    if leaders:
        several = len(leaders) > 1 or leaders[0].instances > 1
        if several and max(need.nodes for need in leaders) == 1 and len(wish.hosts) < 2:
            what = f"{sum(need.instances for need in leaders)} engines of several ranks on one node"
            return (
                "orchestrator",
                [f"{what}: one tritonserver that spawns the ranks of each"],
                mixed if spawning else [],
            )
        why = f"model {leaders[0].model!r} is a C++ engine: each of its ranks is a tritonserver, and rank 0 listens"
        return "leader", [why], mixed if spawning else []
    if max(need.nodes for need in wide) > 1 or len(wish.hosts) > 1:
        why = f"model {wide[0].model!r} spans nodes: trtllm-llmapi-launch carries its workers there"
        return "llmapi", [why], []
    return "single", [f"TensorRT-LLM spawns the {_spawned(wide)} on this node itself; no launcher is needed"], []


def _by_mpi(leaders: Sequence[Need], spawning: Sequence[Need]) -> str:
    if leaders:
        return "leader"
    return "llmapi" if spawning else "single"


def _never_meets(need: Need) -> str:
    return (
        f"--ranks single: model {need.model!r} is a C++ engine of {need.product} ranks; a lone tritonserver would wait "
        "for the others for ever, so leave it out"
    )


def _not_orchestrated(leaders: Sequence[Need], spawning: Sequence[Need]) -> list[str]:
    if not leaders:
        return ["--ranks orchestrator is a mode of the C++ backend, and no model here is a C++ engine of several ranks"]
    return [f"--ranks orchestrator: model {need.model!r} spawns its own workers; launch it apart" for need in spawning]


def _names(needs: Iterable[Need]) -> str:
    return ", ".join(repr(need.model) for need in needs)


def _spawned(wide: Sequence[Need]) -> str:
    total = sum(need.world_size * need.instances for need in wide)
    return f"{total} workers of {_names(wide)}"


def _world(needs: Sequence[Need], need: Need | None) -> tuple[int, str]:
    if need is not None:
        return need.world_size, f"{need.product} of model {need.model!r}, from {need.source}"
    total = sum(each.world_size * each.instances for each in needs)
    if not needs:
        return 1, "no engine of several ranks, so 1"
    parts = [each.product + (f" x {each.instances} instances" if each.instances > 1 else "") for each in needs]
    return total, " and ".join(parts) + (f", together {total}" if len(parts) > 1 or "instances" in parts[0] else "")


def _feature_problems(
    kind: str, wide: Sequence[Need], nodes: int, wish: PlanWish, *, is_openai_frontend: bool
) -> list[str]:
    features = {
        "several-models": (len(wide) > 1, f"models {_names(wide)} have several ranks each"),
        "several-instances": (
            any(need.instances > 1 for need in wide),
            f"{max((need.instances for need in wide), default=1)} instances of several ranks",
        ),
        "several-nodes": (nodes > 1, _nodes_sentence(wide, nodes, wish)),
        "openai-frontend": (is_openai_frontend, "--tritonserver is Triton's OpenAI frontend"),
    }
    problems = []
    for feature, (is_there, sentence) in features.items():
        reason = refusal(kind, feature) if is_there else None
        if reason is not None:
            problems.append(f"{sentence}; {reason}")
    return problems


def _nodes_sentence(wide: Sequence[Need], nodes: int, wish: PlanWish) -> str:
    if len(wish.hosts) > 1:
        return f"{len(wish.hosts)} hosts were given"
    needs = [f"{need.product} ranks of {need.model!r} on {need.gpus_per_node} GPUs a node" for need in wide]
    return f"{'; '.join(needs)} need {nodes} nodes"


def _hosts(kind: str, world_size: int, wish: PlanWish) -> tuple[Host, ...]:
    if kind not in _GROUPS or wish.launcher == "srun":
        return ()
    return wish.hosts or (Host(name="localhost", slots=world_size),)


def _host_problems(kind: str, need: Need | None, world_size: int, nodes: int, wish: PlanWish) -> list[str]:
    given = ",".join(map(str, wish.hosts))
    if kind not in _GROUPS:
        problems = []
        if wish.launcher == "srun":
            problems.append("--launcher srun: the plan is one process, so srun has nothing to start")
        if len(wish.hosts) == 1:
            instead = "leave the host out, or use --ranks mpi" if world_size > 1 else "leave the host out"
            problems.append(f"host {given}: the plan is one process on this machine, placed by no launcher; {instead}")
        return problems
    assert need is not None or world_size == 1
    if wish.launcher == "srun":
        return ["--hosts: Slurm chooses the nodes of --launcher srun; leave out the hosts"] if given else []
    if not given:
        if nodes == 1 or need is None:
            return []
        example = ",".join(f"node{number + 1}:{need.gpus_per_node}" for number in range(nodes))
        sentence = f"{need.product} ranks of {need.model!r} on {need.gpus_per_node} GPUs a node need {nodes} nodes"
        return [f"{sentence}; name them with --hosts {example} or --hostfile, or use --launcher srun in a Slurm job"]
    slots = sum(host.slots for host in wish.hosts)
    if slots < world_size:
        return [f"hosts {given} have {slots} slots, {world_size} ranks need {world_size}"]
    if slots - wish.hosts[-1].slots >= world_size:
        return [f"host {wish.hosts[-1].name} gets none of the {world_size} ranks, which fill those before it; drop it"]
    return []


def _network_problems(nodes: int, world_size: int, wish: PlanWish, env: Mapping[str, str]) -> list[str]:
    interface = wish.mpi_interface
    if nodes == 1:
        if interface is not None and world_size == 1:
            return [f"--mpi-interface {interface}: the plan has one rank, which talks to no other; leave it out"]
        return []
    spans = f"the plan spans {nodes} nodes"
    problems = [
        f"host {host.name} is the loopback, and {spans}: name it as the other nodes reach it"
        for host in wish.hosts
        if is_loopback_name(host.name)
    ]
    if interface is not None and _is_loopback_interface(interface):
        problems.append(f"--mpi-interface {interface} is the loopback, and {spans}; name one that joins them")
    for variable in _ADDRESSES:
        value = env.get(variable, "")
        if is_loopback_name(value) or _is_loopback_interface(value):
            problems.append(f"{variable}={value} is the loopback, and {spans}; unset it or name what joins the nodes")
    if wish.shared_dir is None:
        problems.append(
            f"{spans}, and their scripts must lie where each sees them; name a common folder by --shared-dir"
        )
    return problems


def _is_loopback_interface(name: str) -> bool:
    return name in ("lo", "lo0")


def _notes(kind: str, need: Need | None, hosts: tuple[Host, ...], nodes: int, wish: PlanWish) -> list[str]:
    notes = []
    if wish.mpi_interface is not None:
        notes.append(
            f"MPI's own TCP stays on {wish.mpi_interface} (OMPI_MCA_btl_tcp_if_include): on one node, the loopback "
            "cures start-ups that hang while ranks try interfaces that reach nobody"
        )
    if nodes > 1:
        notes.append(
            "the repository, the bundle, the backends and the toolkit must lie at the same paths on every node"
        )
    if need is not None and any(host.slots < need.tp for host in hosts):
        notes.append(
            f"a tensor-parallel group of {need.tp} crosses nodes, whose links are slower than those inside one"
        )
    if kind == "leader":
        notes.append(
            f"{ranks_text(need.world_size if need else 1)}, all of which load the engine; only rank 0 has ports"
        )
        notes.append(f"not for Triton's OpenAI frontend: {refusal('leader', 'openai-frontend')}")
    return notes
