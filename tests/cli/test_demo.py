"""`seekserve demo` as a process of its own, interrupted on its way."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_demo_that_is_interrupted_stops_cleanly_and_only_ctrl_c_counts_as_a_wish(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "seekserve", "demo", "--dir", "d"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    text = ""
    while not text.startswith("[1]"):
        text = demo.stdout.readline()
    demo.send_signal(number)
    rest, _ = demo.communicate(timeout=60)
    assert rest.endswith("\ninterrupted; stopped cleanly\n")
    assert "Traceback" not in rest
    assert demo.returncode == code
    assert not list(tmp_path.rglob("*.partial"))
