"""The gateway beside a launch of the same command: begins when the server is ready, ends with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import click

from seekserve.cli.optional import needs_extra

if TYPE_CHECKING:
    from seekserve.gateway.beside import GatewayThread
    from seekserve.gateway.options import GatewayOptions
    from seekserve.server import Event

__all__ = ["GatewayBeside", "curl_line"]


class GatewayBeside:
    """`told` wraps the listener of the launch, whose first `ready` says where the server is."""

    def __init__(self, host: str, port: int, keys_file: Path | None, *, request_log: str = "-") -> None:
        """Raises what forbids it: public without keys, a bad file of keys, libraries that are not installed."""
        with needs_extra("gateway"):
            from seekserve.gateway.keys import load_keys

        self._where = (host, port, keys_file, request_log)
        self._options("127.0.0.1:1").check(has_keys=bool(len(load_keys(keys_file, os.environ))))
        self._thread: GatewayThread | None = None

    def start(self, grpc_address: str) -> str:
        """Its URL, once requests are taken."""
        from seekserve.gateway.beside import GatewayThread

        def say(text: str) -> None:
            click.echo(f"gateway: {text}", err=True)

        self._thread = GatewayThread(self._options(grpc_address), os.environ, say=say)
        return self._thread.start().url

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.stop()

    def told(self, say: Callable[[Event], None]) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            say(event)
            if event.kind == "ready" and self._thread is None:
                url = self.start(str(event.data["grpc_url"]))
                model = str(event.data["models"][0])  # type: ignore[index]
                click.echo(f"OpenAI protocol at {url}/v1; try:\n  {curl_line(url, model, 'What is 37 + 48?')}")

        return listen

    def __enter__(self) -> GatewayBeside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _options(self, grpc_address: str) -> GatewayOptions:
        from seekserve.gateway.options import GatewayOptions, read_backend

        host, port, keys_file, request_log = self._where
        return GatewayOptions(
            backends=(read_backend(grpc_address),), host=host, port=port, keys_file=keys_file, log_file=request_log
        )


def curl_line(url: str, model: str, prompt: str) -> str:
    """A command that can be pasted as it is."""
    import json
    import shlex

    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}, ensure_ascii=False)
    return shlex.join(["curl", "-sS", f"{url}/v1/chat/completions", "-H", "content-type: application/json", "-d", body])
