from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.server.shm import clean, leftovers, prefix_of


def test_only_the_launchs_own_files_are_removed(tmp_path: Path) -> None:
    mine, other = prefix_of("aaaa0001"), prefix_of("aaaa0002")
    foreign = "triton_python_backend_shm_region_1"
    for name in (f"{mine}x", f"{mine}y", f"{other}x", foreign):
        (tmp_path / name).touch()
    assert clean(mine, tmp_path) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{other}x", foreign])
    assert clean(mine, tmp_path) == 0


@pytest.mark.parametrize("prefix", ["", "seekserve_", "triton_python_backend_shm_region_"])
def test_a_prefix_that_would_match_others_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(AssertionError):
        clean(prefix, tmp_path)


def test_without_shared_memory_there_is_nothing(tmp_path: Path) -> None:
    assert leftovers("seekserve_", tmp_path / "missing") == []
