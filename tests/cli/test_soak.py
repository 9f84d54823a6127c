"""`seekserve soak` as a user sees it: exit code and both streams, against a scripted server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from click.testing import CliRunner
from fake_server import Running, chunk, error

from seekserve.cli.soak import command
from seekserve.errors import InputError
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine

SLO = "name: fast\nclasses:\n  fast: {share: 1.0, ttft_ms: 5000}\n"


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    running.triton.script = lambda _: iter([chunk("a"), chunk("b", final=True, finish="length", tokens=3)])
    yield running
    running.drop()


def run(tmp_path: Path, *args: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "seekserve", "soak", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def slo(tmp_path: Path) -> Path:
    path = tmp_path / "slo.yaml"
    path.write_text(SLO)
    return path


def arguments(server: Running, slo: Path) -> list[object]:
    return [
        "--url",
        server.url,
        "--model",
        "m",
        "--slo",
        slo,
        "--rate",
        "20",
        "--duration-s",
        "2",
        "--prompt-tokens",
        5,
    ]


def test_a_smoke_passes_and_writes_its_page(server: Running, slo: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = run(tmp_path, *arguments(server, slo), "--report", page, "--json")
    body = json.loads(out)
    checks = {check["name"]: check["ok"] for check in body["phases"][0]["checks"]}
    is_valid = checks.pop("the measurement is valid")
    assert all(checks.values()), body
    assert code == (0 if is_valid else 1), err
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_a_server_that_refuses_fails_the_gate(server: Running, slo: Path, tmp_path: Path) -> None:
    line = ErrorLine(code=ErrorCode.OVERLOADED, reason="full", retry_after_ms=100, request_id="r1")
    server.triton.script = lambda _: iter([error(line.to_line())])
    code, out, _ = run(tmp_path, *arguments(server, slo))
    assert code == 1
    assert out.startswith(f"FAILED: soak smoke of m at {server.url}; ")
    assert "fast within its targets: 0.0%, allowed is at least 90%" in out


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "against what? --slo FILE"),
        (["--drill", "kill"], "--drill names drills of --size drill"),
        (["--may-break"], "--may-break goes with --size drill"),
        (["--size", "drill", "--drill", "flood"], "one of raise, hang, stuck, slow, lose_kv, kill, policy"),
        (["--size", "drill", "--url", "h:1"], "starts one of its own"),
        (["--size", "drill", "--may-break", "--slo", "SLO", "--url", "h:1"], "leave it out where a launch is meant"),
        (["--slo", "SLO"], "no launch is recorded"),
    ],
)
def test_bad_questions(args: list[str], text: str, slo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    given = [str(slo) if arg == "SLO" else arg for arg in args]
    done = CliRunner().invoke(command, given, standalone_mode=False)
    assert isinstance(done.exception, InputError)
    assert (done.stdout, text in str(done.exception)) == ("", True)


def test_nobody_there(slo: Path, tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "--url", "127.0.0.1:1", "--model", "m", "--slo", slo, "--duration-s", "2", "--rate", 9)
    assert (code, "127.0.0.1:1" in err) == (4, True)
