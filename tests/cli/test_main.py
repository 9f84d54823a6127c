"""What ends a command from outside: signals unwind it, what the system refuses is one sentence, a closed pipe is
quiet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from seekserve.cli.interruption import Terminated, exit_code_of, unwinding_signals

# A command of its own, so that a signal or an error comes at a known place.
_PROGRAM = """
import os, signal, sys
import click
import seekserve.cli as front
from pathlib import Path
from seekserve.output import new_folder

@click.command("act")
def act():
{body}

front.LazyGroup.get_command = lambda self, context, name: act
front.main(["act"])
"""


def _main(body: str, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    "))
    settings: dict[str, object] = {"stdout": subprocess.PIPE, **options}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, stderr=subprocess.PIPE, text=True, timeout=60, check=False, **settings
    )  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_unwinds_a_half_written_folder_and_is_the_exit_code(tmp_path: Path, name: str) -> None:
    body = f"""
    with new_folder(Path("deep/out")) as folder:
        (folder / "half").write_text("x")
        os.kill(os.getpid(), signal.{name})
        signal.pause()
    """
    done = _main(body, tmp_path)
    assert done.returncode == 128 + signal.Signals[name]
    assert done.stderr.strip() == "interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_second_sigterm_does_not_break_off_the_cleaning(tmp_path: Path) -> None:
    body = """
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleaned")
    """
    done = _main(body, tmp_path)
    assert (done.returncode, done.stdout) == (143, "cleaned\n")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("open('/proc/nope/x', 'w')", "error: /proc/nope/x: No such file or directory\n"),
        ("raise OSError(28, 'No space left on device')", "error: No space left on device\n"),
    ],
)
def test_what_the_system_refuses_is_one_sentence_and_1(tmp_path: Path, body: str, sentence: str) -> None:
    done = _main(body, tmp_path)
    assert (done.returncode, done.stderr) == (1, sentence)


@pytest.mark.parametrize("body", ["click.echo('x' * 200_000)", "sys.stdout.write('short')", "raise BrokenPipeError"])
def test_a_reader_that_has_seen_enough_is_no_error_message(tmp_path: Path, body: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = _main(body, tmp_path, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_only_the_first_signal_raises_and_the_handlers_are_put_back() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    with unwinding_signals():
        with pytest.raises(Terminated) as caught:
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert exit_code_of(caught.value) == 129
    assert {number: signal.getsignal(number) for number in before} == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with unwinding_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_that_the_command_has_set_for_the_rest_of_the_process_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with unwinding_signals():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("error", "code"), [(None, 130), (KeyboardInterrupt(), 130), (Terminated("SIGTERM"), 143)])
def test_the_exit_code_names_the_signal(error: BaseException | None, code: int) -> None:
    assert exit_code_of(error) == code
