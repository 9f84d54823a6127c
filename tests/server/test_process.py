"""With real, short-lived child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seekserve.server.process import ServerProcess, describe_status, kill_all, living_members

WITH_CHILD = "import os, time\nprint('up', flush=True)\nos.fork()\ntime.sleep(30)"


@pytest.fixture
def start() -> Iterator[list[ServerProcess]]:
    started: list[ServerProcess] = []
    yield started
    for process in started:
        process.end()


def _start(started: list[ServerProcess], tmp_path: Path, code: str) -> ServerProcess:
    process = ServerProcess([sys.executable, "-I", "-S", "-c", code], os.environ, tmp_path / "log")
    started.append(process)
    return process


def _wait_for_output(process: ServerProcess) -> None:
    while not process.tail() and process.wait(0.02) is None:
        pass


def test_the_status_is_the_childs_own(start: list[ServerProcess], tmp_path: Path) -> None:
    process = _start(start, tmp_path, "import sys; sys.exit(7)")
    assert process.wait(20) == 7
    assert process.status() == 7
    assert process.end() == 7


def test_it_leads_a_group_of_its_own_and_end_leaves_nobody(start: list[ServerProcess], tmp_path: Path) -> None:
    process = _start(start, tmp_path, WITH_CHILD)
    _wait_for_output(process)
    assert os.getpgid(process.pid) == process.pid
    while len(living_members(process.pid)) < 2:
        pass
    assert process.end() == -signal.SIGKILL
    assert living_members(process.pid) == []


def test_stubs_that_outlive_their_server_are_ended_too(start: list[ServerProcess], tmp_path: Path) -> None:
    process = _start(start, tmp_path, "import os, time\nif os.fork() == 0:\n    time.sleep(30)")
    assert process.wait(20) == 0
    assert len(living_members(process.pid)) == 1
    process.end()
    assert living_members(process.pid) == []


def test_the_tail_holds_both_streams_and_only_of_this_start(start: list[ServerProcess], tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of an earlier start\n")
    code = "import sys\nprint('out', flush=True)\nprint('err', file=sys.stderr)\nprint(b'\\xff'.decode('latin1'))"
    process = _start(start, tmp_path, code)
    process.wait(20)
    assert process.tail().splitlines()[:2] == ["out", "err"]
    assert process.tail(lines=1) != ""
    assert (tmp_path / "log").read_text().startswith("of an earlier start")


def test_the_session_of_the_caller_itself_is_never_killed() -> None:
    with pytest.raises(AssertionError):
        kill_all(os.getsid(0))


def test_killing_an_empty_session_is_fine() -> None:
    done = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""], start_new_session=True)
    done.wait()
    assert kill_all(done.pid)


@pytest.mark.parametrize(
    ("status", "text"), [(0, "exit status 0"), (3, "exit status 3"), (-9, "killed by SIGKILL"), (-99, "signal 99")]
)
def test_a_status_in_words(status: int, text: str) -> None:
    assert text in describe_status(status)
