"""The gateway on a thread, beside a launch in the same process: for `serve --gateway`, the demo and tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from seekserve.errors import ServerError, TimedOut
from seekserve.gateway.options import GatewayOptions
from seekserve.gateway.run import Gateway

__all__ = ["GatewayThread"]

_START_TIMEOUT_S = 30.0


class GatewayThread:
    """A context manager; `url` is known from the beginning. It dies with the process, whatever becomes of that."""

    def __init__(self, options: GatewayOptions, env: Mapping[str, str], *, say: Callable[[str], None]) -> None:
        """Raises what Gateway raises."""
        self._say = say
        self._is_up = threading.Event()
        self._stop_timeout_s = options.drain_timeout_s + 10.0
        self._gateway = Gateway(options, env, say=self._heard)
        self.url = self._gateway.url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="seekserve-gateway", daemon=True)

    def start(self) -> GatewayThread:
        """Returns when requests are taken."""
        self._thread.start()
        if not self._is_up.wait(_START_TIMEOUT_S) or not self._thread.is_alive():
            raise ServerError(f"the gateway did not start at {self.url} within {_START_TIMEOUT_S:g} s")
        return self

    def stop(self) -> None:
        """Lets running answers end, as long as the drain time; may be called again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._gateway.stop)
            self._thread.join(self._stop_timeout_s)
        if self._thread.is_alive():
            raise TimedOut(f"the gateway at {self.url} did not stop within {self._stop_timeout_s:g} s")

    def __enter__(self) -> GatewayThread:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _heard(self, text: str) -> None:
        self._say(text)
        if text.startswith("listening"):
            self._is_up.set()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._gateway.serve())
        finally:
            self._loop.close()
            self._is_up.set()  # nobody waits for what has ended
