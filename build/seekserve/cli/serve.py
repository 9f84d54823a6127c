"""`seekserve serve`: build, render, install and launch in one command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from seekserve.cli.build_engine import plan_options

__all__ = ["command"]


@click.command("serve")
@click.argument("checkpoint", required=False)
@plan_options
@click.option("--policy", type=click.Path(path_type=Path), help="Policy file (YAML). [default: paced]")
@click.option(
    "--dir",
    "root",
    type=click.Path(path_type=Path),
    default=Path(".seekserve"),
    show_default=True,
    help="Where bundle, repository and backend go, unless the file of choices names their places.",
)
@click.option("--host", help="Address that HTTP, gRPC and metrics bind to. [default: 127.0.0.1]")
@click.option("--http-port", type=click.IntRange(0, 65535), help="0 picks a free one. [default: 8000]")
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="0 picks a free one. [default: 8001]")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="0 picks a free one. [default: 8002]")
@click.option(
    "--gateway",
    "gateway_port",
    type=click.IntRange(0, 65535),
    help="Serve the OpenAI protocol too, on this port; 0 picks a free one.",
)
@click.option(
    "--gateway-keys", "keys_file", type=click.Path(path_type=Path), help="Its API keys; a public host needs them."
)
@click.option("--config", type=click.Path(path_type=Path), help="File of choices. [default: ./seekserve.yaml]")
def command(
    checkpoint: str | None,
    policy: Path | None,
    root: Path,
    host: str | None,
    http_port: int | None,
    grpc_port: int | None,
    metrics_port: int | None,
    gateway_port: int | None,
    keys_file: Path | None,
    config: Path | None,
    **flags: Any,
) -> int:
    """Serve CHECKPOINT: build-engine, render, install-backend and launch, in the foreground.

    What is built already is reused; another checkpoint or other choices are built beside it. Without CHECKPOINT the
    file of choices names it. SIGINT or SIGTERM drains, then stops.
    """
    from seekserve.pipeline import choose_checkpoint, default_paths, prepare
    from seekserve.plan.inputs import flag_inputs
    from seekserve.server import Event, Launch
    from seekserve.server.choosing import choose_options
    from seekserve.settings import announced_settings

    settings = announced_settings(config)
    chosen = choose_checkpoint(checkpoint, settings)
    inputs = flag_inputs(flags)
    paths = default_paths(chosen, settings, inputs, os.environ, root=root)
    model = prepare(chosen, paths, settings, inputs, policy=policy, say=click.echo)
    # The repository of the file's choice may hold other models, which nobody asked to serve here.
    where = {"repository": paths.repository, "backend_dir": paths.backends, "models": (model,)}
    ports = {"http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port}
    options = choose_options({**where, **ports, "host": host}, settings)

    def say(event: Event) -> None:
        click.echo(event.text, err=event.kind in ("warning", "trouble"))

    if gateway_port is None:
        return Launch(options, say=say).run(ends_process=True)
    from seekserve.cli.gateway_beside import GatewayBeside

    # What forbids the gateway is said before minutes are spent on loading.
    with GatewayBeside(options.host, gateway_port, keys_file) as beside:
        return Launch(options, say=beside.told(say)).run(ends_process=True)
