"""Writing a bundle: what fails half-way leaves nothing, and what cannot fit is said first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seekserve.engine.files import FileCopy
from seekserve.engine.writer import check_disk_space, write_bundle
from seekserve.errors import CheckpointError, DoesNotFit
from seekserve_backend.contract.bundle import Bundle, KvCache, Limits, Parallel

BUNDLE = Bundle(
    name="toy",
    family="deepseek_v3",
    engine="reference",
    toolkit_version="0",
    engine_version="0",
    gpu=None,
    parallel=Parallel(),
    weights_dtype="bf16",
    weights_bytes=2,
    step_model=None,
    sources={},
    limits=Limits(max_seq_len_tokens=8, max_batch_size=1, max_num_tokens=8, prefill_chunk_tokens=8),
    kv=KvCache(dtype="bf16", block_tokens=8, capacity_blocks=1, bytes_per_token=2),
    files={},
)


@pytest.fixture
def copy(tmp_path: Path) -> FileCopy:
    (tmp_path / "w").write_bytes(b"abc")
    return FileCopy(source=tmp_path / "w", target="weights/w", size_bytes=3, is_weights=True)


def test_progress_is_told_after_each_file(copy: FileCopy, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    write_bundle(
        tmp_path / "out",
        BUNDLE,
        [copy, replace(copy, target="weights/x")],
        link_weights=False,
        replace_target=False,
        progress=lambda name, done, total: told.append((name, done, total)),
    )
    assert told == [("weights/w", 3, 6), ("weights/x", 6, 6)]


@pytest.mark.parametrize("link_weights", [False, True])
def test_a_file_that_changes_while_it_is_read_stops_the_build(
    copy: FileCopy, tmp_path: Path, link_weights: bool
) -> None:
    with pytest.raises(CheckpointError, match="4 bytes at first, 3 at the end"):
        write_bundle(
            tmp_path / "deep" / "out",
            BUNDLE,
            [replace(copy, size_bytes=4)],
            link_weights=link_weights,
            replace_target=False,
            progress=lambda *_: None,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_bundle_larger_than_the_disk_does_not_fit_unless_linked(copy: FileCopy, tmp_path: Path) -> None:
    huge = replace(copy, size_bytes=2**60)
    with pytest.raises(DoesNotFit, match=r"needs 1048576\.0 TiB, .* free"):
        check_disk_space(tmp_path / "not" / "yet" / "out", [huge], link_weights=False)
    check_disk_space(tmp_path / "not" / "yet" / "out", [huge], link_weights=True)
