"""`seekserve swap`: another variant behind a running model."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import click

from seekserve.swap.request import HOW, SwapRequest

__all__ = ["command"]

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(SwapRequest)}


@click.command("swap")
@click.argument("repository", type=click.Path(path_type=Path), required=False)
@click.option("--to", required=True, metavar="BUNDLE|VARIANT", help="A bundle, or a variant beside the present one.")
@click.option("--model", metavar="NAME", help="Which model, where the launch serves several.")
@click.option("--pid-file", type=click.Path(path_type=Path), help="The launch record, where launch was given one.")
@click.option("--id", "launch_id", help="Id of the launch, where several run.")
@click.option(
    "--how",
    type=click.Choice(HOW),
    default=_DEFAULTS["how"],
    show_default=True,
    help="Load beside the old one, or finish and unload that first; auto: side by side where both fit.",
)
@click.option(
    "--gpus", multiple=True, metavar="N,N,...", help="Other GPUs for the new variant; once for each instance."
)
@click.option(
    "--drain-timeout-s",
    type=click.FloatRange(min=0),
    default=_DEFAULTS["drain_timeout_s"],
    show_default=True,
    metavar="SECONDS",
    help="How long requests of the old variant may go on before they are failed.",
)
@click.option("--allow-other-model", is_flag=True, help="Take a bundle of another family or tokenizer.")
@click.option("--force", is_flag=True, help="Take a smaller sequence limit, and drop edits of config.pbtxt.")
@click.option("--dry-run", is_flag=True, help="Check everything, say which way and why, change nothing.")
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
def command(dry_run: bool, as_json: bool, **flags: Any) -> int:
    """Replace the variant that a running launch serves from REPOSITORY, without losing a request.

    Side by side: the new variant loads while the old one serves, takes over, and the old one ends what it has begun.
    Drain: new requests are refused with the time to come back until the new variant is loaded.
    A new variant that does not load or generate leaves the old one serving. Once ordered, the launch carries it out,
    whatever becomes of this command.
    Exit: 0 when the new variant serves, 2 bad input, 3 refused or a conflict, 4 failed: the old one serves on.
    """
    from seekserve.errors import ConflictError, ServerError
    from seekserve.swap.job import order_swap, plan_swap

    plan = plan_swap(SwapRequest(**flags), os.environ)
    if dry_run:
        click.echo(json.dumps(plan.to_json(), indent=2) if as_json else "\n".join(plan.lines()))
        return 0
    if not as_json:
        click.echo("\n".join(plan.lines()))
    result = order_swap(plan, lambda text: click.echo(f"  {text}", err=as_json))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(result), indent=2))
    else:
        click.echo(f"{result.state} after {result.took_s:.1f} s: {result.text}", err=result.state != "done")
    return {"done": 0, "refused": ConflictError.exit_code}.get(result.state, ServerError.exit_code)
