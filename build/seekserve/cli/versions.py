"""`seekserve versions`: what each TensorRT-LLM version can do, and what of it nobody could verify."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command("versions")
@click.argument("version", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def command(version: str | None, as_json: bool) -> None:
    """Show engine kinds, families, removals and doubts of VERSION, or of every version that is known.

    Reads only the facts that come with seekserve; TensorRT-LLM need not be installed.
    """
    from seekserve.output import json_text
    from seekserve.trtllm import known_versions, resolve_version
    from seekserve.trtllm.report import versions_json, versions_text

    targets = [resolve_version(each) for each in ([version] if version else known_versions())]
    click.echo(
        json_text(versions_json(targets)) if as_json else versions_text(targets, is_detailed=version is not None)
    )
