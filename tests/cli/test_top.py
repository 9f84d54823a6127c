"""`seekserve top` as a user sees it, against a server that only publishes metrics."""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.monitor.exposition import Exposition

from seekserve.cli.top import command
from seekserve.errors import InputError, ServerError


class _Metrics(http.server.BaseHTTPRequestHandler):
    looks = 0

    def do_GET(self) -> None:
        type(self).looks += 1
        made = Exposition().set("requests_offered_total", 10.0 * self.looks).set("running_requests", 3)
        made.set("queue_requests", 2, "interactive").set("pressure_ratio", 0.5)
        body = made.text().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def run(*args: str) -> Result:
    return CliRunner().invoke(command, list(args), standalone_mode=False)


def test_one_picture_where_there_is_no_terminal(address: str) -> None:
    done = run("--url", address, "--interval-s", "0.2")
    assert (done.exception, done.return_value) == (None, 0)
    assert f"chat at {address}: serving, pressure 0.50, nothing shed" in done.output.splitlines()[0]
    assert "\x1b" not in done.output


def test_json_for_scripts(address: str) -> None:
    done = run("--url", address, "--interval-s", "0.2", "--once", "--json")
    body = json.loads(done.output)
    (model,) = body["models"]
    assert (model["verdict"], model["level"]) == ("serving, pressure 0.50, nothing shed", "ok")
    assert (model["queue"], model["running"]) == ({"interactive": 2.0}, 3.0)
    assert model["arrived_per_s"] > 0.0
    assert len(body["scrapes"]) == 2
    assert "kv_used" not in model, "absent is absent"


def test_nobody_answers() -> None:
    done = run("--url", "127.0.0.1:1", "--once", "--interval-s", "0.2")
    assert isinstance(done.exception, ServerError)
    assert "nobody answers" in str(done.exception)


def test_bad_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for args, text in (
        (["--json"], "--json goes with --once"),
        (["--url", "h:1", "--id", "x"], "leave out --pid-file and --id"),
        (["--once"], "no launch is recorded"),
    ):
        done = run(*args)
        assert isinstance(done.exception, InputError)
        assert text in str(done.exception)


@pytest.mark.parametrize("way", ["q", "Ctrl-C"])
def test_on_a_terminal_it_draws_until_told_to_end(address: str, way: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 100, 0, 0))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "seekserve", "top", "--url", address, "--interval-s", "0.3"],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"},
    )  # fmt: skip
    try:
        screen = b""
        while screen.count(b"nothing shed") < 3:
            screen += os.read(ours, 65536)
        if way == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGINT)
        while process.poll() is None:
            if select.select([ours], [], [], 0.1)[0]:
                screen += os.read(ours, 65536)
        assert process.returncode == 0
        assert b"\x1b[?1049h" in screen, "it draws on a screen of its own"
        assert b"\x1b[?1049l" in screen, "and gives the old one back"
        assert b"38;2;" not in screen, "NO_COLOR"
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
