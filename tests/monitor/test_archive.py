from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve.errors import InputError, TargetExists
from seekserve.monitor.archive import Part, listing, write_archive

PARTS = (
    Part(name="logs/server.log", text="a line\n", note="the last 7 of 9 bytes"),
    Part(name="machine/gpus.txt", note="nvidia-smi is not installed"),
    Part(name="a.json", text="{}\n"),
)


def test_the_archive_holds_its_parts_and_says_what_is_missing(tmp_path: Path) -> None:
    target = tmp_path / "report.tar.gz"
    size = write_archive(PARTS, target)
    assert (target.stat().st_size, target.stat().st_mode & 0o777) == (size, 0o600)
    with tarfile.open(target) as tar:
        assert tar.getnames() == ["report/MANIFEST.json", "report/a.json", "report/logs/server.log"]
        file = tar.extractfile("report/MANIFEST.json")
        assert file is not None
        entries = {each["name"]: each for each in json.loads(file.read())["parts"]}
    assert entries["machine/gpus.txt"] == {"name": "machine/gpus.txt", "missing": "nvidia-smi is not installed"}
    assert entries["a.json"]["sha256"] == hashlib.sha256(b"{}\n").hexdigest()
    assert entries["logs/server.log"]["note"] == "the last 7 of 9 bytes"


@settings(deadline=None)
@given(st.permutations(PARTS))
def test_the_same_parts_give_the_same_listing_in_any_order(parts: list[Part]) -> None:
    assert listing(parts) == listing(PARTS)
    assert [line.split()[0] for line in listing(parts)] == ["a.json", "logs/server.log", "machine/gpus.txt"]


def test_the_same_parts_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    write_archive(PARTS, tmp_path / "r.tgz")
    write_archive(PARTS[::-1], tmp_path / "x" / "r.tgz")
    assert (tmp_path / "r.tgz").read_bytes() == (tmp_path / "x" / "r.tgz").read_bytes()


def test_nothing_is_overwritten_and_nothing_left(tmp_path: Path) -> None:
    target = tmp_path / "r.tar.gz"
    target.write_text("mine")
    with pytest.raises(TargetExists, match="exists already"):
        write_archive(PARTS, target)
    with pytest.raises(InputError, match="cannot write"):
        write_archive(PARTS, tmp_path / "nowhere" / "r.tar.gz")
    assert target.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["r.tar.gz"]
