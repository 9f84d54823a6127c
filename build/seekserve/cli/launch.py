"""`seekserve launch`: start tritonserver on a rendered repository and watch over it."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from seekserve.server.options import LAUNCHERS, RANKS, LaunchOptions

__all__ = ["command"]

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(LaunchOptions)}


_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _option(name: str, help: str, **kinds: Any) -> _Decorator:
    """An option that shows the default of LaunchOptions and is None when not given: the file of choices may hold it."""
    default = _DEFAULTS[name.removeprefix("--").replace("-", "_")]
    shown = (
        ""
        if default is None
        else f"  [default: {default:g}]"
        if isinstance(default, float)
        else f"  [default: {default}]"
    )
    return click.option(name, default=None, help=help + shown, **kinds)


_PORT: dict[str, Any] = {"type": click.IntRange(0, 65535), "metavar": "PORT"}
_PATH: dict[str, Any] = {"type": click.Path(path_type=Path)}
_SECONDS: dict[str, Any] = {"type": click.FloatRange(min=0, min_open=True), "metavar": "SECONDS"}


@click.command("launch")
@click.argument("repository", type=click.Path(path_type=Path), required=False)
@click.option("--backend-dir", help="Folder that install-backend wrote to.", **_PATH)
@_option("--tritonserver", "The binary, instead of looking for one.", **_PATH)
@_option("--host", "Address that HTTP, gRPC and metrics bind to.")
@_option("--http-port", "Port of HTTP; 0 picks a free one.", **_PORT)
@_option("--grpc-port", "Port of gRPC; 0 picks a free one.", **_PORT)
@_option("--metrics-port", "Port of the metrics; 0 picks a free one.", **_PORT)
@_option("--pid-file", "Write the launch record here too, besides the state folder.", **_PATH)
@_option("--log-file", "Where the server's output goes; without it, a file that a clean stop removes.", **_PATH)
@_option("--log-verbose", "tritonserver's own verbosity.", type=click.IntRange(min=0), metavar="LEVEL")
@_option(
    "--ready-timeout-s",
    "Longest time from start to the first generation.  [default: 600, or what the bundles' weights need]",
    **_SECONDS,
)
@_option(
    "--exit-timeout-s", "How long a stop waits for requests in flight.", type=click.IntRange(min=0), metavar="SECONDS"
)
@_option("--stall-timeout-s", "A stub without a heartbeat for this long is stuck.", **_SECONDS)
@_option("--engine-stall-s", "An engine loop that stands still for this long is stuck.", **_SECONDS)
@_option("--server-stall-s", "A server that does not answer for this long is stuck.", **_SECONDS)
@_option("--poll-s", "Pause between two looks at the server.", **_SECONDS)
@_option("--max-restarts", "More restarts than this within the window end the launch.", type=click.IntRange(min=0))
@_option("--restart-window-s", "The window that --max-restarts counts in.", **_SECONDS)
@_option("--ranks", "How the ranks of an engine on several GPUs run.", type=click.Choice(RANKS))
@_option("--launcher", "What starts ranks that tritonserver does not start itself.", type=click.Choice(LAUNCHERS))
@_option("--hosts", "Hosts with their GPUs, this one first: node1:8,node2:8.", metavar="LIST")
@_option("--hostfile", "The same from a file of lines `node1 slots=8`.", **_PATH)
@_option("--world-size", "Refuse the launch unless the engines have this many ranks.", type=click.IntRange(min=1))
@_option("--mpi-interface", "Network interface for MPI; `lo` cures some hanging starts on one node.", metavar="NAME")
@_option("--shared-dir", "Folder that every node sees, for the run folder of several nodes.", **_PATH)
@click.option("--config", help="File of choices.  [default: ./seekserve.yaml]", **_PATH)
@click.option("--detach", is_flag=True, help="Return once the server is ready; a process of its own watches over it.")
@click.option("--dry-run", is_flag=True, help="Check everything, print what would be run, start nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each event on standard output.")
def command(config: Path | None, detach: bool, dry_run: bool, as_json: bool, **flags: Any) -> int:
    """Start tritonserver on REPOSITORY and watch over it.

    Ready only after a real generation. The server is restarted when its backend is dead or silent (noticed within 5
    seconds) or stays in one engine step (noticed after 60 seconds, --engine-stall-s).
    SIGINT or SIGTERM drains and stops, a second one kills.
    An engine on several GPUs is run by the plan that fits it (--dry-run prints it and why): one process, or one for
    each rank by MPI. The number of ranks comes from the bundle. A dead rank ends and restarts all of them.
    Exit: 0 after a clean stop, 2 bad input, 3 ports taken, 4 server.
    """
    from seekserve.server.choosing import choose_options
    from seekserve.settings import announced_settings

    options = choose_options(flags, announced_settings(config))
    if dry_run:
        _print_plan(options, as_json=as_json)
        return 0
    if detach:
        _detach(options, as_json=as_json)
        return 0
    from seekserve.server.events import Event
    from seekserve.server.launch import Launch

    def say(event: Event) -> None:
        click.echo(event.to_json() if as_json else event.text, err=event.kind in ("warning", "trouble") and not as_json)

    return Launch(options, say=say).run(ends_process=True)


def _print_plan(options: LaunchOptions, *, as_json: bool) -> None:
    from seekserve.server.plan_text import plan_json, plan_lines
    from seekserve.server.preflight import new_launch_id, prepare

    prepared = prepare(options, os.environ, new_launch_id(), for_show=True)
    click.echo(json.dumps(plan_json(prepared), indent=2) if as_json else "\n".join(plan_lines(prepared)))


def _detach(options: LaunchOptions, *, as_json: bool) -> None:
    from seekserve.server.detach import launch_detached

    path, record = launch_detached(options, os.environ)
    if as_json:
        click.echo(json.dumps({"event": "ready", "record": str(path), **dataclasses.asdict(record)}, sort_keys=True))
        return
    click.echo(
        f"ready: {', '.join(record.models)} in {record.ready_s or 0:.1f} s; "
        f"gRPC {record.grpc_url}, HTTP {record.http_url}, metrics {record.metrics_url}"
    )
    click.echo(f"pid file: {path}")
    click.echo(f"stop it with: seekserve stop --pid-file {shlex.quote(str(path))}")
