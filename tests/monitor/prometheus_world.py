"""The real Prometheus and Alertmanager on loopback, and a webhook that remembers what it was told."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOOLS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
MISSING = [name for name in TOOLS if shutil.which(name) is None]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Webhook:
    """What Alertmanager posted, with the time and the bearer token of each."""

    port: int = 0
    heard: list[tuple[float, dict[str, Any], str]] = field(default_factory=list)

    def told_s(self, alertname: str) -> float | None:
        """When the alert was first told to be firing, on the monotonic clock."""
        for at_s, body, _ in list(self.heard):
            for alert in body["alerts"]:
                if alert["status"] == "firing" and alert["labels"]["alertname"] == alertname:
                    return at_s
        return None


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hook.heard.append((time.monotonic(), body, self.headers.get("Authorization", "")))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hook
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Prometheus:
    url: str

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Raises where the expression does not parse."""
        question = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{question}", timeout=10) as answer:
            return list(json.load(answer)["data"]["result"])


@contextlib.contextmanager
def watching(monitoring: Path, data: Path, *, prometheus_port: int, alertmanager_port: int) -> Iterator[Prometheus]:
    """Both, on the rendered files; they end with the block."""
    commands = {
        "alertmanager": [
            "prometheus-alertmanager",
            f"--config.file={monitoring / 'alertmanager.yml'}",
            f"--storage.path={data / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{alertmanager_port}",
            "--cluster.listen-address=",
        ],
        "prometheus": [
            "prometheus",
            f"--config.file={monitoring / 'prometheus.yml'}",
            f"--storage.tsdb.path={data / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{prometheus_port}",
        ],
    }
    with contextlib.ExitStack() as stack:
        for name, argv in commands.items():
            log = stack.enter_context((data / f"{name}.log").open("wb"))
            process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, cwd=data)
            stack.callback(_end, process)
        for name, port in (("alertmanager", alertmanager_port), ("prometheus", prometheus_port)):
            _wait_ready(f"http://127.0.0.1:{port}/-/ready", data / f"{name}.log")
        yield Prometheus(f"http://127.0.0.1:{prometheus_port}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


def _wait_ready(url: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
