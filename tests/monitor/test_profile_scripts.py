from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from seekserve.monitor.profile_scripts import profile_scripts

SCRIPTS = profile_scripts(["seekserve", "launch", "/srv/my models", "--backend-dir", "/srv/b"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_is_a_shell_script_that_runs_its_tool(name: str, tmp_path: Path) -> None:
    tool = {"gpu-metrics.sh": "nsys", "nsys.sh": "nsys", "ncu.sh": "ncu", "torch-profiler.sh": "seekserve"}[name]
    fake = tmp_path / "bin" / tool
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "iterations $TLLM_PROFILE_START_STOP" "$@"\n')
    fake.chmod(0o755)
    script = tmp_path / name
    script.write_text(SCRIPTS[name])
    env = {"PATH": f"{fake.parent}:/usr/bin:/bin", "ITERATIONS": "5-9"}
    done = subprocess.run(
        ["bash", str(script), "--http-port", "9"], capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    if name == "gpu-metrics.sh":
        assert said[-2:] == ["sleep", "20"]
    else:
        assert any(line == "iterations 5-9" for line in said)
        start = said.index("launch")
        assert said[start:] == ["launch", "/srv/my models", "--backend-dir", "/srv/b", "--http-port", "9"]


def test_without_a_launch_they_take_its_command_line(tmp_path: Path) -> None:
    script = tmp_path / "torch-profiler.sh"
    script.write_text(profile_scripts(None)[script.name])
    assert shutil.which("bash")
    none = subprocess.run(["bash", str(script)], capture_output=True, text=True, env=dict(os.environ))
    assert (none.returncode, none.stderr.startswith("usage:")) == (2, True)
    some = subprocess.run(["bash", str(script), "echo", "a b"], capture_output=True, text=True, cwd=tmp_path)
    assert some.stdout.splitlines()[-1] == "a b"
