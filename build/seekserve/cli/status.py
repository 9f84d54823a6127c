"""`seekserve status`: models, readiness, URLs, queue and KV numbers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

__all__ = ["command"]


@click.command("status")
@click.option("--pid-file", type=click.Path(path_type=Path), help="The launch record, where launch was given one.")
@click.option("--id", "launch_id", help="Id of the launch, where several run.")
@click.option("--url", help="HTTP URL of any server, instead of a launch's record.")
@click.option("--metrics-url", help="Its metrics, with --url.  [default: port 8002 of the same host]")
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
def command(
    pid_file: Path | None, launch_id: str | None, url: str | None, metrics_url: str | None, as_json: bool
) -> int:
    """Show what a server is and does now. Exit: 0 when it is ready, 4 when not."""
    from seekserve.errors import InputError, ServerError
    from seekserve.server.status import default_metrics_url, status_lines, status_of_record, status_of_url
    from seekserve.server.stopping import choose_record

    if url is not None:
        if pid_file is not None or launch_id is not None:
            raise InputError("--url names a server directly; leave out --pid-file and --id")
        url = url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"
        status = status_of_url(url, metrics_url or default_metrics_url(url))
    elif metrics_url is not None:
        raise InputError("--metrics-url goes with --url; a launch's record knows its own")
    else:
        status = status_of_record(choose_record(pid_file=pid_file, launch_id=launch_id, env=os.environ))
    if as_json:
        click.echo(json.dumps(status.to_json(), indent=2))
    else:
        click.echo("\n".join(status_lines(status)))
    return 0 if status.is_ready else ServerError.exit_code
