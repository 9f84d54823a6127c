"""Folders appear whole or not at all, and nothing that was there before is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.errors import InputError, TargetExists
from seekserve.output import bytes_text, files_in, new_folder, problems_text, table, write_files


class Stop(BaseException):
    """As Ctrl-C: not an Exception."""


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_folder_appears_when_the_block_ends(tmp_path: Path) -> None:
    with new_folder(tmp_path / "a" / "b") as folder:
        write_files(folder, {"x/y.txt": "é\n"})
        assert not (tmp_path / "a" / "b").exists()
    assert everything(tmp_path) == ["a", "a/b", "a/b/x", "a/b/x/y.txt"]
    assert (tmp_path / "a/b/x/y.txt").read_bytes() == "é\n".encode()


@pytest.mark.parametrize("error", [ValueError("x"), Stop()])
def test_a_failing_block_leaves_the_disk_as_it_was(tmp_path: Path, error: BaseException) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "a" / "b" / "c") as folder:
            write_files(folder, {"x": "1"})
            raise error

    with pytest.raises(type(error)):
        fail()
    assert everything(tmp_path) == []


def test_a_failing_replacement_keeps_the_old_folder(tmp_path: Path) -> None:
    write_files(tmp_path, {"t/old": "1"})
    with pytest.raises(Stop), new_folder(tmp_path / "t", replace=True):
        raise Stop
    assert everything(tmp_path) == ["t", "t/old"]


def test_a_replacement_holds_nothing_of_the_old_folder(tmp_path: Path) -> None:
    write_files(tmp_path, {"t/old": "1"})
    with new_folder(tmp_path / "t", replace=True) as folder:
        write_files(folder, {"new": "2"})
    assert everything(tmp_path) == ["t", "t/new"]


def test_an_existing_target_is_refused_before_the_block_runs(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with pytest.raises(TargetExists), new_folder(tmp_path / "t"):
        pytest.fail("the block ran")


def test_a_target_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def write() -> None:
        with new_folder(tmp_path / "t") as folder:
            write_files(folder, {"mine": "1"})
            (tmp_path / "t").mkdir()

    with pytest.raises(TargetExists, match="appeared"):
        write()
    assert everything(tmp_path) == ["t"]


def test_a_link_that_leads_nowhere_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "t").symlink_to(tmp_path / "gone")
    with pytest.raises(TargetExists), new_folder(tmp_path / "t"):
        pass


def test_what_the_system_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"cannot write .*file/t: Not a directory"),
        new_folder(tmp_path / "file" / "t"),
    ):
        pass


def test_files_are_listed_without_following_links(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/x": "", "b": ""})
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert files_in(tmp_path) == ["a/loop", "a/x", "b"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**3 // 2, "2.5 GiB"), (3 * 1024**4, "3.0 TiB")],
)
def test_bytes_are_printed_in_binary_units(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_tables_align_and_problems_are_counted() -> None:
    assert table([("a", "1"), ("long", "2")]) == ["  a     1", "  long  2"]
    assert problems_text("f", ["x"]) == "f: x"
    assert problems_text("f", ["x", "y"]) == "f: 2 problems\n  - x\n  - y"
