"""The deployments that the toolkit promises, each built once from a full-size checkpoint (its tensors are holes)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.engine.full_size import make_checkpoint
from tests.engine.trtllm_engine.machine import H100, Case

from seekserve.cli import cli
from seekserve.engine.source import read_source
from seekserve.plan.ask_gpu import GpuRequest, plan_for_gpus
from seekserve.plan.gpu_resolve import require_fit
from seekserve.plan.inputs import Inputs, flag_inputs
from seekserve.plan.model import read_model
from seekserve.plan.target import ALL_FIELDS

Built = Callable[[str], Path]


@dataclass(frozen=True, kw_only=True)
class Deployment:
    checkpoint: str
    engine: str = "trtllm-pytorch"
    flags: Mapping[str, Any] = field(default_factory=dict)


DEPLOYMENTS: dict[str, Deployment] = {
    "v3-8xh200": Deployment(checkpoint="deepseek-v3", flags={"gpu": "h200"}),
    "v3-16xh100": Deployment(checkpoint="deepseek-v3", flags={"gpu": H100, "gpus": 16}),
    "r1-nvfp4-8xb200": Deployment(checkpoint="deepseek-r1-nvfp4", flags={"gpu": "b200"}),
    "v3.2-8xh200": Deployment(checkpoint="deepseek-v3.2", flags={"gpu": "h200"}),
    "v4-flash-8xb200": Deployment(checkpoint="deepseek-v4-flash", flags={"gpu": "b200"}),
    "v2-lite-1xh100": Deployment(checkpoint="deepseek-v2-lite", engine="trtllm-engine", flags={"gpu": H100, "gpus": 1}),
    "moe-16b-1xh100": Deployment(checkpoint="deepseek-moe-16b", engine="trtllm-engine", flags={"gpu": H100, "gpus": 1}),
    "distill-llama-70b-2xh100": Deployment(checkpoint="r1-distill-llama-70b", flags={"gpu": H100, "gpus": 2}),
    "distill-qwen-7b-1xa100": Deployment(checkpoint="r1-distill-qwen-7b", flags={"gpu": "a100-sxm-80gb", "gpus": 1}),
}


def builder(folder: Path) -> Built:
    """Name of a deployment -> its bundle below `folder`, made when it is first asked for."""

    def build(name: str) -> Path:
        out = folder / name
        if not out.exists():
            deployment = DEPLOYMENTS[name]
            checkpoint = folder / deployment.checkpoint
            if not checkpoint.exists():
                make_checkpoint(checkpoint, deployment.checkpoint)
            make = _build_engine if deployment.engine == "trtllm-engine" else _build_pytorch
            make(deployment, checkpoint, out)
        return out

    return build


def _build_pytorch(deployment: Deployment, checkpoint: Path, out: Path) -> None:
    flags = [part for name, value in deployment.flags.items() for part in (f"--{name}", str(value))]
    result = CliRunner().invoke(cli, ["build-engine", str(checkpoint), "--out", str(out), *flags])
    assert result.exit_code == 0, result.output


def _build_engine(deployment: Deployment, checkpoint: Path, out: Path) -> None:
    """On the double of the tools, with a disk large enough for the real thing."""
    flags = flag_inputs({"engine": "trtllm-engine", **deployment.flags}, ALL_FIELDS)
    plan = plan_for_gpus(read_model(str(checkpoint)), GpuRequest(flags=flags, file=Inputs()), {}).plan
    require_fit(plan)
    Case(source=read_source(str(checkpoint)), plan=plan, out=out).build()
