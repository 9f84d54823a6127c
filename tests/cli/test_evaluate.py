"""`seekserve evaluate` as a user sees it: exit codes and both streams."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from fake_server import Running, chunk

from seekserve.cli import main
from seekserve.data import tiny_checkpoint_folder


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    running.triton.script = lambda _call: iter([chunk(" yes\n", final=True, finish="stop")])
    yield running
    running.drop()


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"prompt": "a", "expected": "yes"}\n{"prompt": "b", "expected": "no"}\n', encoding="utf-8")
    return str(path)


def run(folder: Path, *args: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "from seekserve.cli import main; main()", "evaluate", *args],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout, done.stderr


def test_the_report_goes_to_stdout_and_the_progress_to_stderr(server: Running, tasks: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, server.url, "--tasks", tasks)
    assert code == 0
    assert "1 of 2" in out
    assert "9.45 to 90.55 %" in out
    assert err.splitlines() == ["  TARGET: 1 of 2", "  TARGET: 2 of 2"]


def test_json_is_one_object(server: Running, tasks: str, tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, server.url, server.url, "--tasks", tasks, "--json", "--max-drop", "0")
    assert code == 0
    assert json.loads(out)["comparison"]["both_right"] == 1


def test_a_drop_that_is_too_large_exits_3_after_the_report(server: Running, tasks: str, tmp_path: Path) -> None:
    worse = Running()
    worse.triton.script = lambda _call: iter([chunk("hm", final=True, finish="stop")])
    try:
        code, out, err = run(tmp_path, worse.url, server.url, "--tasks", tasks)
    finally:
        worse.drop()
    assert code == 3
    assert "TARGET minus OTHER: -50.00 points" in out
    assert "error: " in err
    assert "a drop of 50.00 points where --max-drop allows 1.5" in err


def test_bad_tasks_exit_2_and_nothing_is_asked(server: Running, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "a"}\nx\n', encoding="utf-8")
    code, out, err = run(tmp_path, server.url, "--tasks", str(bad))
    assert (code, out) == (2, "")
    assert "bad.jsonl:1: expected must be a text" in err
    assert "bad.jsonl:2: not JSON" in err
    assert "Traceback" not in err
    assert server.triton.calls == []


def test_a_server_that_is_not_there_exits_4(server: Running, tasks: str, tmp_path: Path) -> None:
    server.drop()
    code, out, err = run(tmp_path, server.url, "--tasks", tasks)
    assert (code, out) == (4, "")
    assert server.url in err


@pytest.mark.needs_local
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_fp8_against_fp32_kv_with_the_error_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In this process, since importing torch once more would be most of the test's time.
    for kv in ("fp8_e4m3", "fp32"):
        here(
            "build-engine",
            str(tiny_checkpoint_folder()),
            "--engine=reference",
            f"--kv-dtype={kv}",
            f"--out={tmp_path / kv}",
        )
    capsys.readouterr()
    both = (str(tmp_path / "fp8_e4m3"), str(tmp_path / "fp32"))
    assert here("evaluate", *both, "--limit=4", "--errors", "--max-drop=100") == 0
    out, err = capsys.readouterr()
    for words in (
        "weights fp8_block, kv fp8_e4m3",
        "the first 4 of 1000",
        "equal bit for bit: attention",
        "KV latents in fp8_e4m3 against fp32",
        "FP8 pages round a layer's KV latents by at most",
    ):
        assert words in out
    assert "OTHER: 4 of 4" in err


def here(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main([*args])
    return int(caught.value.code or 0)
