"""`seekserve plan`: what fits on which GPUs, before anything is built. Exit 3 with the report when nothing does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])
PRESETS = ("latency", "throughput", "guide-vllm")
PROFILES = ("throughput", "latency")
QUANTIZE = ("fp8_tensor", "awq", "w4a8_awq", "int8")
ESTIMATES = ("shipped", "aiconfigurator")


def plan_inputs(function: F) -> F:
    """One option for each input, from the tables that the environment and the file are read by too."""
    from seekserve.plan.target import ALL_FIELDS

    for spec in reversed(ALL_FIELDS):
        help_text = spec.gpu_help or spec.help
        if spec.kind is bool:
            spelling = f"{spec.flag}/--no-{spec.flag.removeprefix('--')}"
            option = click.option(spelling, spec.name, default=None, help=help_text)
        else:
            kind = click.Choice(spec.choices) if spec.choices else spec.kind
            option = click.option(spec.flag, spec.name, type=kind, default=None, help=help_text)
        function = option(function)
    return function


@click.command("plan")
@click.argument("checkpoint", required=False)
@plan_inputs
@click.option("--preset", type=click.Choice(PRESETS), help="Ready-made inputs; any flag overrides one of them.")
@click.option("--profile", type=click.Choice(PROFILES), help="Settings of NVIDIA's guides for model and GPU.")
@click.option(
    "--quantize", type=click.Choice(QUANTIZE), help="Plan for such weights, as an engine is built of plain ones."
)
@click.option("--topology", type=click.Path(path_type=Path), help="File with the output of `nvidia-smi topo -m`.")
@click.option("--estimate", type=click.Choice(ESTIMATES), help="Predict TTFT, TPOT and tokens per second.")
@click.option("--slo-ttft-ms", type=float, default=2000.0, show_default=True, help="First token within this time.")
@click.option("--slo-tpot-ms", type=float, default=50.0, show_default=True, help="Each further token within this time.")
@click.option("--price-per-gpu-hour", type=float, help="Adds the cost per million generated tokens.")
@click.option("--against", type=click.Path(path_type=Path), help="Saved `plan --json` to compare the cost with.")
@click.option("--beside", type=click.Path(path_type=Path), help="Saved `plan --json` of an engine on the same GPUs.")
@click.option("--one-off-cost", type=float, help="Cost of changing over, for the pay-back against --against.")
@click.option("--config", type=click.Path(path_type=Path), help="File of choices. [default: ./seekserve.yaml]")
@click.option("--explain", is_flag=True, help="Print the source of every value and how each figure was made.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(checkpoint: str | None, config: Path | None, explain: bool, as_json: bool, **flags: Any) -> None:
    """Say what CHECKPOINT needs and what GPUs hold of it: memory, cache, limits, legal shapes.

    CHECKPOINT is a folder, a bare config.json, or the id of a model in the local Hugging Face cache. Without --tp and
    its like the legal shapes on the given GPUs are searched. Exit 3 when no plan is possible; the report says why.
    """
    from seekserve.output import json_text
    from seekserve.pipeline import choose_checkpoint
    from seekserve.plan.ask import PlanRequest, make_plan
    from seekserve.settings import announced_settings

    settings = announced_settings(config)
    request = PlanRequest.from_flags(choose_checkpoint(checkpoint, settings), flags, explain=explain)
    answer = make_plan(request, settings.inputs, os.environ)
    click.echo(json_text(answer.to_json()) if as_json else answer.text())
    answer.require_fit()
