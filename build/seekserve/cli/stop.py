"""`seekserve stop`: end a launch, and clean up after one that died."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click

__all__ = ["command"]


@click.command("stop")
@click.option("--pid-file", type=click.Path(path_type=Path), help="The launch record, where launch was given one.")
@click.option("--id", "launch_id", help="Id of the launch, where several run.")
@click.option(
    "--timeout-s", type=click.FloatRange(min=0), help="Kill it after this long.  [default: its own exit timeout + 15]"
)
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
def command(pid_file: Path | None, launch_id: str | None, timeout_s: float | None, as_json: bool) -> int:
    """Stop a server started with launch. Exit: 0 after a clean stop, 4 otherwise (it is stopped then, too)."""
    from seekserve.errors import ServerError
    from seekserve.server.stopping import choose_record, stop_launch

    path = choose_record(pid_file=pid_file, launch_id=launch_id, env=os.environ)
    outcome = stop_launch(path, timeout_s=timeout_s)
    click.echo(
        json.dumps(dataclasses.asdict(outcome)) if as_json else outcome.text, err=not (as_json or outcome.is_clean)
    )
    return 0 if outcome.is_clean else ServerError.exit_code
