"""`seekserve build-engine`: checkpoint -> engine bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["command", "plan_options"]

F = TypeVar("F", bound=Callable[..., Any])


def plan_options(function: F) -> F:
    """One option for each input of a plan, from the table that the environment and the file are read by too."""
    from seekserve.plan.inputs import FIELDS

    for spec in reversed(FIELDS):
        kind = click.Choice(spec.choices) if spec.choices else spec.kind
        function = click.option(spec.flag, spec.name, type=kind, default=None, help=spec.help)(function)
    return function


@click.command("build-engine")
@click.argument("checkpoint", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the new bundle.")
@plan_options
@click.option(
    "--weights",
    type=click.Choice(["copy", "link"]),
    default="copy",
    show_default=True,
    help="Copy the weights into the bundle, or link to where they are.",
)
@click.option("--config", type=click.Path(path_type=Path), help="File of choices. [default: ./seekserve.yaml]")
@click.option("--force", is_flag=True, help="Replace a bundle that is there already.")
@click.option("--dry-run", is_flag=True, help="Print what would be written and every value's source, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    checkpoint: str | None,
    out: Path | None,
    weights: str,
    config: Path | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **flags: object,
) -> None:
    """Build an engine bundle from CHECKPOINT, a folder or the id of a model in the local Hugging Face cache.

    Every flag of the plan can also be given in the environment (--max-batch-size as SEEKSERVE_MAX_BATCH_SIZE) or in the
    file of choices; a flag wins over the environment, and that over the file.
    """
    import psutil

    from seekserve.engine.build import BuildRequest, build
    from seekserve.plan.inputs import flag_inputs
    from seekserve.settings import announced_settings

    request = BuildRequest(
        checkpoint=checkpoint,
        out=out,
        inputs=flag_inputs(flags),
        link_weights=weights == "link",
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
