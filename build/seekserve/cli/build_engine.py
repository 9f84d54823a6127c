"""`seekserve build-engine`: checkpoint -> engine bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["command", "plan_options"]

F = TypeVar("F", bound=Callable[..., Any])
PRESETS = ("latency", "throughput", "guide-vllm")
PROFILES = ("throughput", "latency")
QUANTIZE = ("fp8_tensor", "awq", "w4a8_awq", "int8")


def plan_options(function: F) -> F:
    """One option for each input of a plan, from the table that the environment and the file are read by too."""
    from seekserve.plan.inputs import FIELDS

    for spec in reversed(FIELDS):
        kind = click.Choice(spec.choices) if spec.choices else spec.kind
        function = click.option(spec.flag, spec.name, type=kind, default=None, help=spec.help)(function)
    return function


def target_options(function: F) -> F:
    """One option for each input of a deployment on GPUs."""
    from seekserve.plan.target import TARGET_FIELDS

    for spec in reversed(TARGET_FIELDS):
        if spec.kind is bool:
            spelling = f"{spec.flag}/--no-{spec.flag.removeprefix('--')}"
            option = click.option(spelling, spec.name, default=None, help=spec.help)
        else:
            kind = click.Choice(spec.choices) if spec.choices else spec.kind
            option = click.option(spec.flag, spec.name, type=kind, default=None, help=spec.help)
        function = option(function)
    return function


def trtllm_options(function: F) -> F:
    """What only TensorRT-LLM is asked; names are the fields of TrtllmFlags."""
    path = click.Path(path_type=Path)
    options = (
        click.option("--profile", type=click.Choice(PROFILES), help="Settings of NVIDIA's guides for model and GPU."),
        click.option("--preset", type=click.Choice(PRESETS), help="Ready-made inputs, as in `seekserve plan`."),
        click.option("--topology", type=path, help="File with the output of `nvidia-smi topo -m`."),
        click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Own argument of tensorrt_llm.LLM."),
        click.option("--extra-args", type=path, help="YAML file of own arguments of tensorrt_llm.LLM."),
        click.option("--max-beam-width", type=int, help="Most beams of one request. [default: 1]"),
        click.option("--retain-prompt-priority", type=int, help="Prompts' cache is evicted later, 0 to 100."),
        click.option("--retain-prompt-tokens", type=int, help="Of each prompt's beginning only. [default: all]"),
        click.option("--retain-prompt-s", type=float, help="For so long. [default: without end]"),
        click.option("--decode-priority", type=int, help="Answers' cache is evicted later, 0 to 100."),
        click.option("--quantize", type=click.Choice(QUANTIZE), help="Make such weights of plain ones, for an engine."),
        click.option("--build-flag", "build_flags", multiple=True, metavar="NAME=VALUE", help="Flag of trtllm-build."),
        click.option("--examples-dir", type=path, help="TensorRT-LLM's `examples` folder, with convert_checkpoint.py."),
        click.option("--calibration-data", help="Data set for quantisation: a local folder or a hub name."),
        click.option("--workers", type=int, help="Processes that build engine ranks."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command("build-engine")
@click.argument("checkpoint", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the new bundle.")
@click.option("--variant", metavar="NAME", help="Put behind the name, so that a second precision lives beside it.")
@plan_options
@target_options
@trtllm_options
@click.option(
    "--weights",
    type=click.Choice(["copy", "link"]),
    help="Copy the weights into the bundle, or link to where they are. [default: link for trtllm-pytorch, else copy]",
)
@click.option("--config", type=click.Path(path_type=Path), help="File of choices. [default: ./seekserve.yaml]")
@click.option("--force", is_flag=True, help="Replace a bundle that is there already.")
@click.option("--dry-run", is_flag=True, help="Print every file, step and value's source, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    checkpoint: str | None,
    out: Path | None,
    variant: str | None,
    weights: str | None,
    config: Path | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Build an engine bundle from CHECKPOINT, a folder or the id of a model in the local Hugging Face cache.

    Without --gpu and --engine the reference engine on the CPU; with --gpu the engine kind of TensorRT-LLM that runs the
    model. Every flag of the plan can also be given in the environment (--max-batch-size as SEEKSERVE_MAX_BATCH_SIZE) or
    in the file of choices; a flag wins over the environment, and that over the file.
    """
    import psutil

    from seekserve.engine.build import BuildRequest, build
    from seekserve.engine.trtllm_flags import TrtllmFlags
    from seekserve.plan.inputs import flag_inputs
    from seekserve.plan.target import ALL_FIELDS
    from seekserve.settings import announced_settings

    names = {spec.name for spec in ALL_FIELDS}
    request = BuildRequest(
        checkpoint=checkpoint,
        out=out,
        inputs=flag_inputs({name: value for name, value in flags.items() if name in names}, ALL_FIELDS),
        link_weights=None if weights is None else weights == "link",
        variant=variant,
        trtllm=TrtllmFlags(**{name: value for name, value in flags.items() if name not in names}),
        force=force,
        dry_run=dry_run,
    )
    report = build(
        request,
        announced_settings(config),
        os.environ,
        host_memory_bytes=psutil.virtual_memory().total,
        progress=_show_progress,
    )
    click.echo(report.json_text() if as_json else report.text())


def _show_progress(name: str, done_bytes: int, total_bytes: int) -> None:
    """On stderr, for a person who waits; a small bundle is written before one could read it."""
    from seekserve.output import bytes_text

    if total_bytes > 1024**3:
        click.echo(f"  {bytes_text(done_bytes)} of {bytes_text(total_bytes)}: {name}", err=True)
