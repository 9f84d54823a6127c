"""Plans for GPUs from the real configs, in one call."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from seekserve.plan.deployment import Deployment
from seekserve.plan.gpu_resolve import resolve_gpu
from seekserve.plan.gpus import GIB
from seekserve.plan.inputs import flag_inputs
from seekserve.plan.model import Model, read_model
from seekserve.plan.plan import Plan
from seekserve.plan.target import ALL_FIELDS

CONFIGS = Path(__file__).parents[1] / "checkpoint" / "configs"


@functools.cache
def model(name: str) -> Model:
    return read_model(str(CONFIGS / f"{name}.json"))


def plan(name: str = "deepseek-v3", gpu: str = "h200", **flags: Any) -> Plan:
    return resolve_gpu(flag_inputs({"gpu": gpu, **flags}, ALL_FIELDS), model(name))


def deployment(name: str = "deepseek-v3", gpu: str = "h200", **flags: Any) -> Deployment:
    made = plan(name, gpu, **flags).deployment
    assert made is not None
    return made


def messages(name: str = "deepseek-v3", gpu: str = "h200", **flags: Any) -> dict[str, str]:
    """Rule -> sentence and hint of every finding."""
    found = deployment(name, gpu, **flags).findings
    return {each.rule: f"{each.severity}: {each.message} -> {each.hint}" for each in found}


def gib(size_bytes: float) -> float:
    return size_bytes / GIB
