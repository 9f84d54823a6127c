"""Plans from a line: needs, wishes and a machine that has everything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from seekserve.server.command import ServerCommand
from seekserve.server.plans import Choice, LaunchPlan, MachineFacts, PlanWish, choose, make_plan
from seekserve.server.plans.hosts import parse_hosts
from seekserve.server.plans.need import LEADER, SPAWNS, Need
from seekserve.server.ports import Ports

COMMAND = ServerCommand(
    binary=Path("/t/tritonserver"),
    repository=Path("/r"),
    backend_dir=Path("/b"),
    models=("front", "tensorrt_llm"),
    host="127.0.0.1",
    ports=Ports(http=1, grpc=2, metrics=3),
    shm_prefix="seekserve_ab_",
    admin_key="KEY",
    exit_timeout_s=30,
    ready_timeout_s=60.0,
    log_verbose=0,
    has_gpu=True,
    configs_complete=True,
)
MACHINE = MachineFacts(
    programs={name: f"/usr/bin/{name}" for name in ("mpirun", "srun", "trtllm-llmapi-launch")},
    own_hosts=frozenset({"localhost", "a"}),
    env={"PATH": "/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2", "NCCL_DEBUG": "INFO"},
)
RUN_DIR = Path("/tmp/seekserve-ab")


def leader(tp: int = 2, pp: int = 1, **changes: Any) -> Need:
    """The stock C++ engine."""
    values: dict[str, Any] = {
        "model": "tensorrt_llm",
        "starter": LEADER,
        "tp": tp,
        "pp": pp,
        "source": "/e/config.json",
    }
    return Need(**{**values, **changes})


def spawning(tp: int = 8, pp: int = 1, **changes: Any) -> Need:
    """A bundle of ours."""
    values: dict[str, Any] = {"model": "v3", "starter": SPAWNS, "tp": tp, "pp": pp, "source": "/bundle/bundle.json"}
    return Need(**{**values, **changes})


def wish(hosts: str | None = None, **changes: Any) -> PlanWish:
    return PlanWish(hosts=() if hosts is None else parse_hosts(hosts), **changes)


def choice(*needs: Need, env: dict[str, str] | None = None, frontend: bool = False, **wishes: Any) -> Choice:
    found, problems = choose(needs, wish(**wishes), env or {}, is_openai_frontend=frontend)
    assert problems == []
    return found


def problems(*needs: Need, env: dict[str, str] | None = None, frontend: bool = False, **wishes: Any) -> list[str]:
    return choose(needs, wish(**wishes), env or {}, is_openai_frontend=frontend)[1]


def plan(*needs: Need, machine: MachineFacts = MACHINE, run_dir: Path = RUN_DIR, **wishes: Any) -> LaunchPlan:
    changes = {"SEEKSERVE_RUN_DIR": str(run_dir), "PATH": "/py:/bin"}
    return make_plan(choice(*needs, **wishes), COMMAND, changes, wish=wish(**wishes), facts=machine, run_dir=run_dir)


def with_programs(*names: str) -> MachineFacts:
    return dataclasses.replace(MACHINE, programs={name: f"/usr/bin/{name}" for name in names})
