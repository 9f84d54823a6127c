from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="not installed: starlette (the gateway extra)")

from tests.client.fake_server import Running

from seekserve.gateway.options import GatewayOptions, read_backend
from seekserve.gateway.run import Gateway

PATIENCE_S = 30.0


class RunningGateway:
    """A gateway on a loop of its own thread, behind a port on loopback."""

    def __init__(self, options: GatewayOptions, env: dict[str, str]) -> None:
        self.said: list[str] = []
        self._is_ready = threading.Event()
        self.gateway = Gateway(options, env, say=self._say)
        self.url = self.gateway.url
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()
        assert self._is_ready.wait(PATIENCE_S), self.said
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False)

    def _say(self, text: str) -> None:
        self.said.append(text)
        if text.startswith("listening"):
            self._is_ready.set()

    def _run(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self.gateway.serve())
        self._loop.close()

    def stop(self) -> None:
        self.client.close()
        self._loop.call_soon_threadsafe(self.gateway.stop)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def post(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, json=body, headers=named)

    def chat(self, body: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        return self.post("/v1/chat/completions", {**CHAT, **(body or {})}, **headers)

    def metric(self, name: str, **labels: str) -> float:
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        for line in self.client.get("/metrics").text.splitlines():
            if line.split("{")[0].split(" ")[0] == name and all(each in line for each in wanted):
                return float(line.rsplit(" ", 1)[1])
        return 0.0


CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
Start = Callable[..., RunningGateway]


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    yield running
    running.drop()


@pytest.fixture
def start(server: Running, tmp_path: Path) -> Iterator[Start]:
    """Starts gateways, by default in front of `server`; they are stopped at the end."""
    running: list[RunningGateway] = []

    def start_one(*backends: Running, env: dict[str, str] | None = None, **options: Any) -> RunningGateway:
        specs = tuple(read_backend(each.url) for each in backends or (server,))
        given = {"port": 0, "log_file": str(tmp_path / "requests.jsonl"), "drain_timeout_s": 1.0, **options}
        running.append(RunningGateway(GatewayOptions(backends=specs, **given), env or {}))
        return running[-1]

    yield start_one
    for each in running:
        each.stop()


@pytest.fixture
def gateway(start: Start) -> RunningGateway:
    return start()


@pytest.fixture(autouse=True)
def _no_launch_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch records of the machine's user must not decide what a test sees."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
