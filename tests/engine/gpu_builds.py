"""Plans and arguments from bare configs, in one call each: what needs no tensors is tested without them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.full_size import make_config

from seekserve.engine.llm_args import Args
from seekserve.engine.pytorch_args import settled_args
from seekserve.engine.trtllm_flags import TrtllmFlags
from seekserve.plan.ask_gpu import GpuRequest, plan_for_gpus
from seekserve.plan.gpu_resolve import require_fit
from seekserve.plan.inputs import Inputs, flag_inputs
from seekserve.plan.model import read_model
from seekserve.plan.plan import Plan
from seekserve.plan.target import ALL_FIELDS

NAMES = set(TrtllmFlags.__slots__)


def planned(name: str, *, environ: Mapping[str, str] | None = None, file: Inputs | None = None, **flags: Any) -> Plan:
    """Names of TrtllmFlags and of the plan's inputs, as they come."""
    own = TrtllmFlags(**{key: value for key, value in flags.items() if key in NAMES})
    inputs = flag_inputs({key: value for key, value in flags.items() if key not in NAMES}, ALL_FIELDS)
    request = GpuRequest(
        flags=inputs,
        file=file or Inputs(),
        topology=own.topology,
        preset=own.preset,
        profile=own.profile,
        quantize=own.quantize,
    )
    with tempfile.TemporaryDirectory() as folder:
        model = read_model(str(make_config(Path(folder), name)))
    plan = plan_for_gpus(model, request, environ or {}).plan
    require_fit(plan)
    return plan


def settled(name: str, **flags: Any) -> tuple[Plan, Args, tuple[str, ...]]:
    plan = planned(name, **flags)
    own = TrtllmFlags(**{key: value for key, value in flags.items() if key in NAMES})
    assert plan.deployment is not None
    args, warnings = settled_args(own.wish(plan.engine, plan.deployment.target.version), plan)
    return plan, args, warnings
