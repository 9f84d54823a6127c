"""The supervisor against the real thing: a killed stub, a stopped stub, and the whole demo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.live.conftest import Deployment, Server

from seekserve.client import Client, GenerateRequest


def stub_pids(server: Server) -> list[int]:
    run_dir = Path(json.loads(server.record.read_text())["run_dir"])
    return [json.loads(p.read_text())["pid"] for p in run_dir.glob("heartbeat-*.json")]


@pytest.fixture(scope="module")
def synthetic_only(deployment: Deployment) -> Path:
    from tests.live.conftest import run_cli

    repository = deployment.folder / "synthetic-only"
    run_cli("render", deployment.folder / "synthetic", "--out", repository)
    return repository


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stuck_stub_is_replaced(deployment: Deployment, synthetic_only: Path, sent: signal.Signals) -> None:
    server = Server(deployment, repository=synthetic_only)
    try:
        deadline = time.monotonic() + 10
        while not (pids := stub_pids(server)):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        os.kill(pids[0], sent)
        server.wait_event("restarting")
        server.ready = server.wait_event("ready")
        assert server.ready["restarts"] == 1
        with Client(server.grpc, "synthetic") as client:
            assert client.generate(GenerateRequest(prompt="hi", max_tokens=3)).completion_tokens == 3
    finally:
        code = server.stop()
    assert code == 0


def test_the_demo_answers_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seekserve", "demo", "--dir", str(tmp_path / "demo")]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "85" in done.stdout
    assert "stopped cleanly" in done.stdout
    assert not list((tmp_path / "state").rglob("*.json"))


@pytest.mark.parametrize("after", ["[1]", "loading", "[5]"])
def test_an_interrupted_demo_stops_cleanly(tmp_path: Path, after: str) -> None:
    command = [sys.executable, "-u", "-m", "seekserve", "demo", "--dir", str(tmp_path / "demo")]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    demo = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert demo.stdout is not None
    text = ""
    for line in demo.stdout:
        text += line
        if after in line:
            demo.send_signal(signal.SIGINT)
            break
    text += demo.stdout.read()
    demo.stdout.close()
    assert demo.wait(60) == 0, text
    assert "stopped cleanly" in text
    assert not list((tmp_path / "state").rglob("*.json"))
