"""A prepared launch as text or JSON: what would run where, on which ports, for how long, and why. Keys are masked."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from seekserve.server.command import mask
from seekserve.server.group import RANK_DEATH_S
from seekserve.server.plans.plan import Rank
from seekserve.server.preflight import Prepared

__all__ = ["plan_json", "plan_lines"]


def _secrets(prepared: Prepared) -> tuple[str, str]:
    return prepared.command.admin_key, prepared.probe_key


def plan_json(prepared: Prepared) -> dict[str, object]:
    plan, secrets = prepared.plan, _secrets(prepared)
    return {
        "kind": plan.kind,
        "launcher": plan.launcher,
        "world_size": plan.world_size,
        "product": plan.product,
        "hosts": [{"name": host.name, "slots": host.slots} for host in plan.hosts],
        "argv": _masked(plan.argv, secrets),
        "env": {name: mask(value, secrets) for name, value in plan.env.items()},
        "servers": [_server_json(rank, secrets) for rank in plan.servers],
        "files": {str(prepared.run_dir / name): mask(text, secrets) for name, text in plan.files.items()},
        "ports": {option.removeprefix("--"): port for option, port in prepared.ports.items()},
        "http_url": prepared.http_url,
        "grpc_url": prepared.grpc_address,
        "metrics_url": prepared.metrics_url,
        "ready_timeout_s": prepared.ready_timeout_s,
        "ready_timeout_source": prepared.ready_timeout_source,
        "why": list(plan.why),
        "blockers": list(plan.blockers),
        "found_by": prepared.server.found_by,
    }


def _masked(argv: Sequence[str], secrets: Sequence[str]) -> list[str]:
    return [mask(argument, secrets) for argument in argv]


def _server_json(rank: Rank, secrets: Sequence[str]) -> dict[str, object]:
    return {
        "rank": rank.number,
        "host": rank.host,
        "listens": rank.listens,
        "models": list(rank.models),
        "shm_prefix": rank.shm_prefix,
        "argv": _masked(rank.argv, secrets),
    }


def plan_lines(prepared: Prepared) -> list[str]:
    plan, secrets = prepared.plan, _secrets(prepared)
    lines = [f"# tritonserver found by {prepared.server.found_by}; keys are masked"]
    lines += [f"# plan: {plan.summary}"]
    lines += [f"# why: {sentence}" for sentence in plan.why]
    lines += [f"# not here: {blocker}" for blocker in plan.blockers]
    for rank in plan.servers:
        who = f"rank {rank.number} on {rank.host}" if plan.is_group else "serves"
        lines.append(f"# {who}: {_role(rank, prepared)}")
    lines.append(f"# ready within {prepared.ready_timeout_s:g} s ({prepared.ready_timeout_source})")
    if plan.is_group:
        lines.append(f"# a dead rank ends all others within {RANK_DEATH_S:g} s of being noticed, and all are restarted")
    for name, text in plan.files.items():
        lines += [f"# file {prepared.run_dir / name}:", *(f"#   {line}" for line in mask(text, secrets).splitlines())]
    lines += [f"{name}={shlex.quote(mask(value, secrets))} \\" for name, value in plan.env.items()]
    lines.append(" \\\n  ".join(shlex.quote(argument) for argument in _masked(plan.argv, secrets)))
    return lines


def _role(rank: Rank, prepared: Prepared) -> str:
    models = f"models {', '.join(rank.models)}"
    if not rank.listens:
        return f"no ports; {models}; shared memory {rank.shm_prefix}*"
    urls = f"HTTP {prepared.http_url}, gRPC {prepared.grpc_address}, metrics {prepared.metrics_url}"
    return f"{urls}; {models}; shared memory {rank.shm_prefix}*"
