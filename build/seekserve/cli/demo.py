"""`seekserve demo`: the main job in the open, each step by the very command that a user would type."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

import click

__all__ = ["command"]

_QUESTION, _ANSWER = "What is 37 + 48?", "85"


@click.command("demo")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(".seekserve/demo"),
    show_default=True,
    help="Where bundle, repository and backend go; what is there already is reused.",
)
@click.option("--prompt", default=_QUESTION, show_default=True, help="What to ask the tiny model.")
def command(folder: Path, prompt: str) -> int:
    """Serve the tiny checkpoint with the real tritonserver, ask it over gRPC and HTTP, stop cleanly.

    Ctrl-C at any point stops cleanly too, with exit code 0; 4 when tritonserver did not stop cleanly.
    """
    from seekserve.cli.interruption import exit_code_of

    started_s = time.perf_counter()
    try:
        _run(folder, prompt)
    except KeyboardInterrupt as interruption:
        # Whatever was started is stopped by now, and cleanly: the launch would have raised otherwise.
        click.echo("\ninterrupted; stopped cleanly")
        code = exit_code_of(interruption)
        return 0 if code == exit_code_of(None) else code
    click.echo(f"\ndone in {time.perf_counter() - started_s:.1f} s")
    return 0


def _run(folder: Path, prompt: str) -> None:
    from seekserve.data import tiny_checkpoint_folder
    from seekserve.errors import TargetExists

    bundle, repository, backends = folder / "bundle", folder / "repository", folder / "backends"
    build = ("build-engine", tiny_checkpoint_folder(), "--engine", "reference", "--out", bundle)
    try:
        _step(1, "build the engine bundle", *build)
    except TargetExists as error:
        # The demo's own folder, left by an older version of the toolkit or its checkpoint.
        click.echo(f"    {error.message.splitlines()[0]}")
        _step(1, "build it again", *build, "--force")
    _step(2, "render the Triton model repository", "render", bundle, "--out", repository)
    _step(3, "install the backend", "install-backend", backends)
    _serve_and_ask(repository, backends, prompt)


def _serve_and_ask(repository: Path, backends: Path, prompt: str) -> None:
    from seekserve.errors import ServerError
    from seekserve.server import Event, Launch, LaunchOptions

    def say(event: Event) -> None:
        click.echo(f"    {event.text}")

    options = LaunchOptions(
        repository=repository, backend_dir=backends, http_port=0, grpc_port=0, metrics_port=0, ready_timeout_s=180.0
    )
    ports = ("--http-port", 0, "--grpc-port", 0, "--metrics-port", 0)
    _announce(4, "launch tritonserver", "launch", repository, "--backend-dir", backends, *ports)
    with Launch(options, say=say) as launch:
        launch.start()
        launch.wait_ready()
        completion = _step(5, "ask, streamed over gRPC", "generate", prompt, "--url", launch.grpc_address)
        _expect(prompt, completion.text)
        _expect(prompt, _ask_over_http(launch.grpc_address, launch.models[0], prompt))
        click.echo("\n[7] stop")
        code = launch.stop()
    if code:
        raise ServerError(f"tritonserver did not stop cleanly; its log is {launch.log_file}")


def _expect(prompt: str, text: str) -> None:
    from seekserve.errors import RequestFailed

    if prompt == _QUESTION and _ANSWER not in text:
        raise RequestFailed(f"the tiny model answered {text!r} to {_QUESTION!r}, expected {_ANSWER}")


def _ask_over_http(grpc_address: str, model: str, prompt: str) -> str:
    """The OpenAI protocol, by the very curl line that is shown; by Python where there is no curl."""
    from seekserve.cli.gateway_beside import GatewayBeside, curl_line

    _announce(6, "ask in the OpenAI protocol, over HTTP", "gateway", "--backend", grpc_address, "--port", 0)
    beside = GatewayBeside("127.0.0.1", 0, None, request_log="")
    with beside:
        line = curl_line(beside.start(grpc_address), model, prompt)
        click.echo(f"  $ {line}")
        answer = _curl(line)
    click.echo(f"    {answer}")
    return str(json.loads(answer)["choices"][0]["message"]["content"])


def _curl(line: str) -> str:
    import shutil
    import subprocess
    import urllib.request

    program, *arguments = shlex.split(line)
    if shutil.which(program):
        return subprocess.run(
            [program, "--noproxy", "*", *arguments], check=True, capture_output=True, text=True
        ).stdout
    url, body = next(each for each in arguments if "://" in each), arguments[-1]
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return str(answer.read().decode())


def _announce(number: int, title: str, *arguments: object) -> None:
    line = shlex.join(["seekserve", *map(str, arguments)])
    click.echo(f"\n[{number}] {title}\n  $ {line}")


def _step(number: int, title: str, *arguments: object) -> Any:
    """Runs the command as the command line would; what it returns."""
    from seekserve.cli import cli

    _announce(number, title, *arguments)
    started_s = time.perf_counter()
    try:
        result = cli.main(args=[str(a) for a in arguments], prog_name="seekserve", standalone_mode=False)
    except click.Abort as abort:  # click's form of an interruption; outside of it, it shall be one again
        raise abort.__cause__ if isinstance(abort.__cause__, KeyboardInterrupt) else KeyboardInterrupt from abort
    click.echo(f"    ({time.perf_counter() - started_s:.1f} s)")
    return result
