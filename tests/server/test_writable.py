from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.server.writable import write_problem


@pytest.mark.parametrize("renamed", [True, False])
@pytest.mark.parametrize("name", ["x", "deep/er/x"])
def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path: Path, name: str, renamed: bool) -> None:
    assert write_problem(tmp_path / name, "--log-file", is_renamed_into_place=renamed) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("renamed", [True, False])
@pytest.mark.parametrize("place", ["/proc/nope/x.json", "file/x.json", "folder"])
def test_a_place_that_takes_no_file_is_one_sentence_with_its_setting(tmp_path: Path, place: str, renamed: bool) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    path = tmp_path / place
    problem = str(write_problem(path, "--pid-file", is_renamed_into_place=renamed))
    assert problem.startswith(f"--pid-file {path} ")
    assert "\n" not in problem


def test_a_device_may_be_the_log() -> None:
    assert write_problem(Path("/dev/null"), "--log-file", is_renamed_into_place=False) is None
