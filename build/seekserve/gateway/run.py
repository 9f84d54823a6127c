"""The gateway as a process: bind, say where it is, serve until told to stop, let running answers end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

import uvicorn

from seekserve.errors import ConflictError, InputError
from seekserve.gateway.app import make_app
from seekserve.gateway.keys import KeyRing, load_keys
from seekserve.gateway.logs import open_log
from seekserve.gateway.options import GatewayOptions, is_loopback_host
from seekserve.gateway.pool import Pool
from seekserve.gateway.tracing import make_tracer

__all__ = ["Gateway", "run"]

_BACKLOG = 2048


class Gateway:
    """Bound when made (`url` is then known); `serve` runs until `stop` or a signal."""

    def __init__(self, options: GatewayOptions, env: Mapping[str, str], *, say: Callable[[str], None]) -> None:
        """Raises InputError and ConflictError before anything is bound or written."""
        keys = load_keys(options.keys_file, env)
        options.check(has_keys=bool(len(keys)))
        tracer = make_tracer(options.otlp_endpoint)
        self._say = say
        self._warnings = _warnings(options, keys)
        self._socket = _bind(options)
        scheme = "https" if options.tls_certificate else "http"
        self.url = f"{scheme}://{_address(self._socket)}"
        try:
            log = open_log(options.log_file)
        except OSError as error:
            self._socket.close()
            raise InputError(f"request log {options.log_file}: {error.strerror}") from error
        app = make_app(options, keys, log=log, tracer=tracer, ready=self._ready)
        self._server = _Server(
            uvicorn.Config(
                app,
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                # Nothing that a caller may send decides who the caller is.
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=max(1, int(options.drain_timeout_s)),
                ssl_certfile=options.tls_certificate,
                ssl_keyfile=options.tls_key,
            )
        )

    def _ready(self, pool: Pool) -> None:
        for warning in self._warnings:
            self._say(f"warning: {warning}")
        for backend in pool.backends:
            state = ", ".join(backend.models) if backend.is_up else "not ready yet"
            self._say(f"backend {backend.name}: {state}")
        self._say(f"listening on {self.url}")

    async def serve(self) -> None:
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Of the loop's thread: no new connections; answers that run may end in the drain time."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own would raise the signal once more after a clean stop, which then looks like an interruption."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        """The first lets running answers end, the second does not."""
        self.force_exit = self.should_exit
        self.should_exit = True


def run(options: GatewayOptions, env: Mapping[str, str], *, say: Callable[[str], None]) -> int:
    """Serves until SIGINT or SIGTERM; 0 after a clean stop."""
    import uvloop

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    gateway = Gateway(options, env, say=say)
    uvloop.run(gateway.serve())
    return 0


def _bind(options: GatewayOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((options.host, options.port))
        # Now, so that whoever is told the address can connect; answers begin when every backend was looked at.
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise ConflictError(
            f"cannot listen on {options.host} port {options.port}: {error.strerror}",
            hint="choose another with --port; 0 picks a free one",
        ) from error
    return bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _warnings(options: GatewayOptions, keys: KeyRing) -> list[str]:
    out = []
    if not is_loopback_host(options.host) and options.tls_certificate is None:
        out.append(f"{options.host} is public and TLS is off: keys and prompts travel in the clear; give --tls-cert")
    if not len(keys):
        out.append("no API keys: everyone on this machine may ask, under any tenant")
    return out
