"""A folder, or a hub id in the local Hugging Face cache; never a download."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.checkpoint.toy import v3_toy

from seekserve.checkpoint import read_checkpoint
from seekserve.checkpoint.hub import cache_folder, find_checkpoint
from seekserve.errors import CheckpointError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The layout that huggingface_hub writes: snapshot files are links into blobs."""
    repository = tmp_path / "hub" / "models--org--tiny"
    (repository / "blobs").mkdir(parents=True)
    snapshot = repository / "snapshots" / COMMIT
    v3_toy().write(snapshot)
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(repository / "blobs" / f"{number:064d}")
        file.symlink_to(Path("../../blobs") / f"{number:064d}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return tmp_path / "hub"


@pytest.mark.parametrize("identifier", ["org/tiny", "org/tiny@main", f"org/tiny@{COMMIT}"])
def test_an_id_is_looked_up_in_the_cache(cache: Path, identifier: str) -> None:
    found = find_checkpoint(identifier, {"HF_HUB_CACHE": str(cache)})
    assert found == cache / "models--org--tiny" / "snapshots" / COMMIT


def test_links_into_the_blobs_are_read_without_a_word(cache: Path) -> None:
    facts = read_checkpoint(cache / "models--org--tiny" / "snapshots" / COMMIT)
    assert [finding.code for finding in facts.findings] == ["attention-variant"]
    assert len(facts.files) == 2


def test_a_link_that_leads_elsewhere_is_a_warning(tmp_path: Path) -> None:
    folder = v3_toy().write(tmp_path / "checkpoint")
    shard = folder / "model-00001-of-00002.safetensors"
    shard.rename(tmp_path / "elsewhere.safetensors")
    shard.symlink_to(tmp_path / "elsewhere.safetensors")
    facts = read_checkpoint(folder)
    assert [f.code for f in facts.findings if f.severity.value == "warning"] == ["link-outside"]


def test_a_dangling_link_is_a_missing_shard(tmp_path: Path) -> None:
    folder = v3_toy().write(tmp_path / "checkpoint")
    shard = folder / "model-00001-of-00002.safetensors"
    shard.unlink()
    shard.symlink_to(tmp_path / "gone")
    assert "shard-missing" in {finding.code for finding in read_checkpoint(folder).errors}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
    ],
)
def test_the_cache_is_where_huggingface_puts_it(environment: dict[str, str], expected: str) -> None:
    assert cache_folder(environment) == Path(expected)


def test_a_folder_wins_over_an_id(cache: Path, tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path, {"HF_HUB_CACHE": str(cache)}) == tmp_path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("org/other", "neither a folder nor in the local"),
        ("org/tiny@v9", COMMIT),
        ("../org/tiny", "not a hub id"),
        ("nothing here", "not a hub id"),
        ("org/..", "not a hub id"),
    ],
)
def test_what_is_not_there_is_said_with_the_next_step(cache: Path, name: str, says: str) -> None:
    with pytest.raises(CheckpointError, match=says) as caught:
        find_checkpoint(name, {"HF_HUB_CACHE": str(cache)})
    assert caught.value.hint


def test_a_ref_that_points_out_of_the_snapshots_is_refused(cache: Path) -> None:
    (cache / "models--org--tiny" / "refs" / "main").write_text("../../..")
    with pytest.raises(CheckpointError, match="not in the cache"):
        find_checkpoint("org/tiny", {"HF_HUB_CACHE": str(cache)})


def test_a_file_is_refused_with_the_folder_as_hint(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a file"):
        find_checkpoint(tmp_path / "model.safetensors", {})


def test_an_empty_folder_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither config\.json nor safetensors"):
        read_checkpoint(tmp_path)
