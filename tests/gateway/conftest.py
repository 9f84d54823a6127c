from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="not installed: starlette (the gateway extra)")

from tests.client.fake_server import Running

from seekserve.gateway.beside import GatewayThread
from seekserve.gateway.options import GatewayOptions, read_backend

PATIENCE_S = 30.0


class RunningGateway:
    """A gateway behind a port on loopback, and a client for it."""

    def __init__(self, options: GatewayOptions, env: dict[str, str]) -> None:
        self.said: list[str] = []
        self._thread = GatewayThread(options, env, say=self.said.append).start()
        self.url = self._thread.url
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False)

    def stop(self) -> None:
        self.client.close()
        self._thread.stop()

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
