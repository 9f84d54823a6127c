"""A child and all that it starts: its log, its status, and its end when the build is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from tests.engine.trtllm_engine.machine import Case, machine

from seekserve.engine.trtllm_engine.process import describe_status, log_tail, run_child

ENV = dict(os.environ)
ROOT = Path(__file__).parents[3]


def run(code: str, folder: Path) -> int:
    return run_child([sys.executable, "-c", code], env=ENV, cwd=folder, log=folder / "x.log")


def test_both_streams_are_in_the_log(tmp_path: Path) -> None:
    assert run("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)", tmp_path) == 3
    assert (tmp_path / "x.log").read_text() == "out\nerr\n"


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert log_tail(log) == ""
    log.write_text("".join(f"line {number}\n" for number in range(10000)) + "bar 1%\rbar 100%\nlast\n\n")
    assert log_tail(log, 3) == "bar 1%\nbar 100%\nlast"


def test_a_status_is_said_in_words() -> None:
    assert describe_status(2) == "exit status 2"
    assert describe_status(-signal.SIGKILL) == "SIGKILL, out of memory?"
    assert describe_status(-signal.SIGSEGV) == "SIGSEGV"
    assert describe_status(-250) == "signal 250"


def test_what_a_child_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    code = """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time\\ntime.sleep(600)"])
        print(child.pid)
        sys.exit(1)
    """
    assert run(textwrap.dedent(code), tmp_path) == 1
    assert is_gone(int((tmp_path / "x.log").read_text()))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_ends_its_children_and_can_go_on(v2_lite: Case, number: int, code: int) -> None:
    fifo = v2_lite.out.with_name("pids")
    os.mkfifo(fifo)
    more = {"TRTLLM_DOUBLE_HANG": "trtllm-build", "TRTLLM_DOUBLE_PIDS": str(fifo)}
    environ = {**ENV, **machine(more).environ}
    # Signals that a test runner ignores stay ignored in its children, so the child asks for its own.
    build = subprocess.Popen([sys.executable, "-c", DRIVER, str(v2_lite.source.folder), str(v2_lite.out)], env=environ)
    try:
        pids = [int(word) for word in fifo.read_text().split()]  # waits until the step hangs
        build.send_signal(number)
        assert build.wait(60) == code
    finally:
        build.kill()
        build.wait()
    assert all(is_gone(pid) for pid in pids)
    assert not v2_lite.out.exists()
    assert [step.status for step in v2_lite.build(dry_run=True).steps] == ["reused", "to do"]


def is_gone(pid: int) -> bool:
    """An orphan that nobody has reaped yet is gone too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


DRIVER = f"""
import signal, sys
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}]
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.engine.trtllm_engine.machine import Case, H100, machine
from seekserve.cli.interruption import exit_code_of, unwinding_signals
from seekserve.engine.source import read_source
from seekserve.plan.gpu_resolve import resolve_gpu
from seekserve.plan.inputs import flag_inputs
from seekserve.plan.model import read_model
from seekserve.plan.target import ALL_FIELDS
import os
folder, out = sys.argv[1:]
given = flag_inputs({{"engine": "trtllm-engine", "gpu": H100, "gpus": 1}}, ALL_FIELDS)
case = Case(source=read_source(folder), plan=resolve_gpu(given, read_model(folder)), out=Path(out))
try:
    with unwinding_signals():
        case.build(host=machine(os.environ))
except KeyboardInterrupt as error:
    sys.exit(exit_code_of(error))
"""
