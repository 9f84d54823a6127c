"""Opening a bundle: what is missing, changed or foreign is said before anybody loads it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from seekserve.errors import BundleError
from seekserve.plan.bundle import open_bundle, sha256_of
from seekserve_backend.contract.bundle import Bundle, BundleFile, KvCache, Limits, Parallel


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bundle = Bundle(
        name="toy", family="deepseek_v3", engine="reference", toolkit_version="0", engine_version="0", gpu=None,
        parallel=Parallel(), weights_dtype="bf16", weights_bytes=2, step_model=None, sources={},
        limits=Limits(max_seq_len_tokens=8, max_batch_size=1, max_num_tokens=8, prefill_chunk_tokens=8),
        kv=KvCache(dtype="bf16", block_tokens=8, capacity_blocks=1, bytes_per_token=2),
        files={"weights/w": BundleFile(size_bytes=2, sha256=hashlib.sha256(b"ab").hexdigest())},
    )  # fmt: skip
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w").write_bytes(b"ab")
    (tmp_path / "bundle.json").write_text(bundle.to_json(), encoding="utf-8")
    return tmp_path


def fault(folder: Path, *, hashes: bool = False) -> str:
    with pytest.raises(BundleError) as caught:
        open_bundle(folder, hashes=hashes)
    return str(caught.value)


def test_a_whole_bundle_opens(folder: Path) -> None:
    assert open_bundle(folder, hashes=True).name == "toy"


def test_places_that_are_no_bundle_say_why(folder: Path, tmp_path: Path) -> None:
    assert "no such folder" in fault(tmp_path / "none")
    assert "not a folder" in fault(folder / "bundle.json")
    assert "no bundle.json in it" in fault(folder / "weights")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 1}'])
def test_a_description_that_cannot_be_read_says_what(folder: Path, text: str) -> None:
    (folder / "bundle.json").write_text(text, encoding="utf-8")
    assert f"bundle {folder}: bundle.json" in fault(folder)


def test_another_schema_names_the_command_that_rebuilds(folder: Path) -> None:
    data = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps({**data, "schema_version": 99}), encoding="utf-8")
    assert "schema_version 99 where this version reads 2" in fault(folder)
    assert "seekserve build-engine" in fault(folder)


def test_changed_content_of_the_same_size_is_found_by_its_hash(folder: Path) -> None:
    (folder / "weights" / "w").write_bytes(b"xy")
    assert open_bundle(folder).name == "toy"
    assert "weights/w has sha256" in fault(folder, hashes=True)


def test_a_link_that_leads_nowhere_says_where_it_led(folder: Path) -> None:
    (folder / "weights" / "w").unlink()
    (folder / "weights" / "w").symlink_to("/gone/model.safetensors")
    assert "weights/w is missing, a link to /gone/model.safetensors" in fault(folder)


def test_a_hash_is_of_the_whole_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    (tmp_path / "f").write_bytes(data)
    assert sha256_of(tmp_path / "f") == hashlib.sha256(data).hexdigest()
