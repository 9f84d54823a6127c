"""`seekserve inspect`: what a checkpoint is and what is wrong with it. Exit 2 with errors, the report still printed."""

from __future__ import annotations

import click

__all__ = ["command"]

ERRORS_FOUND = 2


@click.command("inspect")
@click.argument("checkpoint")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(checkpoint: str, as_json: bool) -> int:
    """Say what CHECKPOINT is and what is wrong with it.

    CHECKPOINT is a folder, or a hub id (org/name, org/name@revision) that lies in the local Hugging Face cache. Only
    JSON files and safetensors headers are read; nothing of the checkpoint is executed.
    """
    from seekserve.checkpoint import read_checkpoint
    from seekserve.checkpoint.report import report_json, report_text
    from seekserve.output import json_text

    facts = read_checkpoint(checkpoint)
    click.echo(json_text(report_json(facts)) if as_json else report_text(facts))
    return ERRORS_FOUND if facts.errors else 0
