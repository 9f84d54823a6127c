"""One real tritonserver for all live tests: the tiny checkpoint and the synthetic engine, built and rendered by the
commands."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

MISSING = [n for n in ("torch", "transformers", "pytriton") if importlib.util.find_spec(n) is None]
TINY = "tiny_deepseek_v3"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.live)
            if MISSING:
                item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(MISSING)} (the local extra)"))


@dataclass(frozen=True)
class Deployment:
    folder: Path
    repository: Path
    backends: Path


class Server:
    """A `seekserve launch` in a process of its own."""

    def __init__(self, deployment: Deployment, *options: str, repository: Path | None = None) -> None:
        self.record = deployment.folder / f"launch-{os.getpid()}-{id(self)}.json"
        self.log = self.record.with_suffix(".log")
        ports = ("--http-port", 0, "--grpc-port", 0, "--metrics-port", 0)
        files = ("--pid-file", self.record, "--log-file", self.log)
        arguments = (
            repository or deployment.repository,
            "--backend-dir",
            deployment.backends,
            *ports,
            *files,
            "--json",
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "seekserve", "launch", *map(str, arguments), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.ready = self.wait_event("ready")

    def wait_event(self, kind: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if line.startswith("{") and (event := json.loads(line))["event"] == kind:
                return dict(event)
        raise AssertionError(f"launch ended before {kind!r}:\n{''.join(seen)}\n{self.log.read_text()[-2000:]}")

    @property
    def grpc(self) -> str:
        return str(self.ready["grpc_url"])

    @property
    def http(self) -> str:
        return str(self.ready["http_url"])

    def metric(self, name: str, model: str, **labels: str) -> float:
        text = urllib.request.urlopen(str(self.ready["metrics_url"]), timeout=10).read().decode()
        wanted = {"model": model, **labels}
        for line in text.splitlines():
            if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in wanted.items()):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError((name, wanted))

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(60)


def run_cli(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "seekserve", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    from scripts.benchlib import synthetic_bundle

    from seekserve.data import tiny_checkpoint_folder

    folder = tmp_path_factory.mktemp("live")
    made = Deployment(folder=folder, repository=folder / "repository", backends=folder / "backends")
    run_cli("build-engine", tiny_checkpoint_folder(), "--engine", "reference", "--out", folder / "bundle")
    run_cli("render", folder / "bundle", "--out", made.repository, "--name", TINY)
    run_cli("render", synthetic_bundle(folder / "synthetic"), "--out", made.repository)
    run_cli("install-backend", made.backends)
    return made


@pytest.fixture(scope="session")
def server(deployment: Deployment) -> Iterator[Server]:
    started = Server(deployment)
    try:
        yield started
    finally:
        code = started.stop()
    assert code == 0, f"launch ended with {code}:\n{started.log.read_text()[-3000:]}"
