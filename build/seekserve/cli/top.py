"""`seekserve top`: running servers at a glance, the verdict first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

__all__ = ["command"]


@click.command("top")
@click.option("--url", "urls", multiple=True, help="Metrics of a server, HOST:8002; several may be given.")
@click.option("--pid-file", type=click.Path(path_type=Path), help="The launch record, where launch was given one.")
@click.option("--id", "launch_id", help="Id of the launch, where several run.")
@click.option(
    "--interval-s", default=2.0, show_default=True, type=click.FloatRange(0.2, 60.0), help="Between two looks."
)
@click.option("--once", is_flag=True, help="Two looks, one picture, and end; also where output is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="With --once: as JSON, which diagnose --dump takes.")
def command(
    urls: tuple[str, ...],
    pid_file: Path | None,
    launch_id: str | None,
    interval_s: float,
    once: bool,
    as_json: bool,
) -> int:
    """Show queues, cache, pressure, rates, times and refusals of running servers, live.

    Without --url, of the launch on this machine. `q` or Ctrl-C ends it. Exit: 0, or 4 when nobody answers.
    """
    from seekserve.errors import InputError
    from seekserve.monitor.history import History
    from seekserve.monitor.sources import local_metrics_url, with_scheme
    from seekserve.monitor.top import make_console, once_json, show_once, watch
    from seekserve.output import json_text

    if as_json and not once:
        raise InputError("--json goes with --once")
    if urls and (pid_file is not None or launch_id is not None):
        raise InputError("--url names a server directly; leave out --pid-file and --id")
    addresses = [with_scheme(url) for url in urls]
    addresses = addresses or [local_metrics_url(pid_file=pid_file, launch_id=launch_id, env=os.environ)]
    history = History()
    if as_json:
        click.echo(json_text(once_json(history, addresses, interval_s=interval_s)))
    elif once or not sys.stdout.isatty():
        show_once(make_console(), history, addresses, interval_s=interval_s)
    else:
        try:
            watch(make_console(), history, addresses, interval_s=interval_s)
        except KeyboardInterrupt:  # the usual way to leave
            return 0
    return 0
