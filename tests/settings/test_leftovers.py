"""What a run that was killed left beside its target: the next run removes it, and nothing that is somebody else's."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seekserve.output import new_folder, write_files

_KILLED = """
import os, signal
from pathlib import Path
from seekserve.output import new_folder
with new_folder(Path("out")) as folder:
    (folder / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    process.wait()
    return process.pid


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [name.endswith(".partial") for name in _names(tmp_path)] == [True]
    with new_folder(tmp_path / "out"):
        pass
    assert _names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "name", [".other.{dead}-0123abcd.partial", ".out.{alive}-0123abcd.partial", ".out.0123abcd.partial", ".out.mine"]
)
def test_another_target_a_living_maker_and_foreign_names_are_left_alone(tmp_path: Path, name: str) -> None:
    name = name.format(dead=_ended_pid(), alive=os.getpid())
    write_files(tmp_path, {f"{name}/x": "1"})
    with new_folder(tmp_path / "out"):
        pass
    assert _names(tmp_path) == sorted([name, "out"])


def test_a_folder_that_another_machine_or_container_still_writes_is_left_alone(tmp_path: Path) -> None:
    name = f".out.{_ended_pid()}-0123abcd.partial"
    write_files(tmp_path, {f"{name}/x": "1"})
    descriptor = os.open(tmp_path / name, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with new_folder(tmp_path / "out"):
            pass
    finally:
        os.close(descriptor)
    assert _names(tmp_path) == sorted([name, "out"])


def test_a_link_in_place_of_a_leftover_is_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path, {"precious/x": "1"})
    link = tmp_path / f".out.{_ended_pid()}-0123abcd.partial"
    link.symlink_to("precious")
    with new_folder(tmp_path / "out"):
        pass
    assert (tmp_path / "precious" / "x").exists()


@pytest.mark.parametrize("target_exists", [True, False])
def test_what_was_moved_aside_is_removed_only_while_it_is_not_the_only_copy(
    tmp_path: Path, target_exists: bool
) -> None:
    aside = f".out.{_ended_pid()}-0123abcd.replaced"
    write_files(tmp_path, {f"{aside}/x": "old"})
    if target_exists:
        write_files(tmp_path, {"out/x": "new"})
    with new_folder(tmp_path / "out", replace=True):
        pass
    assert _names(tmp_path) == (["out"] if target_exists else [aside, "out"])
