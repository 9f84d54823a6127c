"""One real tritonserver for all live tests: the tiny checkpoint and the synthetic engine, built and rendered by the
commands."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

MISSING = [n for n in ("torch", "transformers", "pytriton") if importlib.util.find_spec(n) is None]
TINY = "tiny_deepseek_v3"
_REPORTED_LINES = 40
_REPORTED_LOG_CHARS = 4000


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
    """A `seekserve launch` in a process of its own; what it says is read as it comes, so that it never has to wait."""

    def __init__(self, deployment: Deployment, *options: str, repository: Path | None = None) -> None:
        self.repository = repository or deployment.repository
        self.record = deployment.folder / f"launch-{os.getpid()}-{id(self)}.json"
        self.log = self.record.with_suffix(".log")
        ports = ("--http-port", 0, "--grpc-port", 0, "--metrics-port", 0)
        files = ("--pid-file", self.record, "--log-file", self.log)
        arguments = (
            self.repository,
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
        self._said: list[str] = []
        self._waited_for = 0
        self._has_ended = False
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="launch-reader", daemon=True)
        self._reader.start()
        _started.append(self)
        self.ready = self.wait_event("ready")

    def wait_event(self, kind: str, timeout_s: float = 300.0) -> dict[str, Any]:
        """The next event of the kind after the one that was waited for last."""
        deadline = time.monotonic() + timeout_s
        with self._heard:
            while True:
                while self._waited_for < len(self._said):
                    line = self._said[self._waited_for]
                    self._waited_for += 1
                    if line.startswith("{") and (event := json.loads(line))["event"] == kind:
                        return dict(event)
                assert not self._has_ended, f"launch ended before {kind!r}:\n{self.report()}"
                left_s = deadline - time.monotonic()
                assert left_s > 0, f"no event {kind!r} in {timeout_s:g} s:\n{self.report()}"
                self._heard.wait(left_s)

    def report(self) -> str:
        """For whoever has to find out why a test failed."""
        log = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else "(no log)"
        said = "".join(line[:500].rstrip() + "\n" for line in self._said[-_REPORTED_LINES:])
        state = f"running, pid {self.process.pid}" if self.process.poll() is None else f"exit {self.process.poll()}"
        return f"launch ({state}) said:\n{said}end of {self.log.name}:\n{log[-_REPORTED_LOG_CHARS:]}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._heard:
                self._said.append(line)
                self._heard.notify_all()
        with self._heard:
            self._has_ended = True
            self._heard.notify_all()

    @property
    def grpc(self) -> str:
        return str(self.ready["grpc_url"])

    @property
    def http(self) -> str:
        return str(self.ready["http_url"])

    def metric(self, name: str, model: str, **labels: str) -> float:
        """Of the first sample with these labels."""
        return self._samples(name, model, labels)[0]

    def metric_sum(self, name: str, model: str, **labels: str) -> float:
        return sum(self._samples(name, model, labels))

    def _samples(self, name: str, model: str, labels: dict[str, str]) -> list[float]:
        wanted = {"model": model, **labels}
        found = [
            float(line.rsplit(" ", 1)[1])
            for line in self.scrape().splitlines()
            if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in wanted.items())
        ]
        if not found:
            raise KeyError((name, wanted))
        return found

    def scrape(self) -> str:
        with urllib.request.urlopen(str(self.ready["metrics_url"]), timeout=10) as answer:
            return str(answer.read().decode())

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


_started: list[Server] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its servers said: those still running, and the last one that a test had for itself."""
    report = yield
    if report.failed:
        for server in _started:
            if server.process.poll() is None or server is _started[-1]:
                report.sections.append((f"server {server.log.name}", server.report()))
    return report


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
    assert code == 0, started.report()
