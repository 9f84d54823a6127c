"""What `serve` prepares: folders of each deployment's own, reused or built again, and the model that it launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.toy import v3_toy

from seekserve.errors import TargetExists
from seekserve.output import files_in
from seekserve.pipeline import Paths, default_paths, deployment_folder, prepare
from seekserve.plan.inputs import Inputs, flag_inputs
from seekserve.settings import PathSettings, Settings, load_settings


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return _toy(tmp_path / "ck")


def _toy(folder: Path) -> Path:
    toy = v3_toy()
    assert toy.tokenizer is not None
    toy.tokenizer["decoder"] = {"type": "ByteLevel"}
    return toy.write(folder)


def _prepare(checkpoint: Path, root: Path, settings: Settings | None = None, **flags: Any) -> tuple[Paths, str, str]:
    """Paths, model and everything that was said."""
    said: list[str] = []
    settings, inputs = settings or Settings(), flag_inputs(flags)
    paths = default_paths(str(checkpoint), settings, inputs, {}, root=root)
    model = prepare(str(checkpoint), paths, settings, inputs, say=said.append)
    return paths, model, "\n".join(said)


def _models(repository: Path) -> list[str]:
    return sorted(path.name for path in repository.iterdir())


def test_the_same_choices_find_what_is_built(checkpoint: Path, tmp_path: Path) -> None:
    first, _, _ = _prepare(checkpoint, tmp_path / "s")
    second, _, said = _prepare(checkpoint, tmp_path / "s")
    assert first == second
    assert "already built, reused" in said
    assert "unchanged model ck" in said


def test_a_changed_choice_is_built_beside_the_first_and_the_first_stays(checkpoint: Path, tmp_path: Path) -> None:
    first, _, _ = _prepare(checkpoint, tmp_path / "s")
    second, _, _ = _prepare(checkpoint, tmp_path / "s", max_batch_size=3)
    sizes = [
        json.loads((paths.bundle / "bundle.json").read_text())["limits"]["max_batch_size"] for paths in (first, second)
    ]
    assert sizes == [16, 3]
    assert "already built, reused" in _prepare(checkpoint, tmp_path / "s")[2]


def test_a_changed_name_is_a_repository_of_its_own_with_one_model(checkpoint: Path, tmp_path: Path) -> None:
    first, first_model, _ = _prepare(checkpoint, tmp_path / "s", name="one")
    second, second_model, _ = _prepare(checkpoint, tmp_path / "s", name="two")
    assert (first_model, second_model) == ("one", "two")
    assert (_models(first.repository), _models(second.repository)) == (["one"], ["two"])


def test_two_checkpoints_of_one_folder_name_do_not_meet(tmp_path: Path) -> None:
    first, _, _ = _prepare(_toy(tmp_path / "a" / "ck"), tmp_path / "s")
    second, _, _ = _prepare(_toy(tmp_path / "b" / "ck"), tmp_path / "s")
    assert first.bundle != second.bundle
    assert first.repository != second.repository


def test_a_checkpoint_that_has_changed_in_its_place_is_built_again(checkpoint: Path, tmp_path: Path) -> None:
    first, _, _ = _prepare(checkpoint, tmp_path / "s")
    shard = checkpoint / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x01")
    second, _, said = _prepare(checkpoint, tmp_path / "s")
    assert first == second
    assert "holds a bundle of something else" in said
    assert "replaced bundle ck" in said


def test_a_bundle_whose_place_the_file_names_is_never_replaced(checkpoint: Path, tmp_path: Path) -> None:
    settings = Settings(paths=PathSettings(bundle=tmp_path / "mine"))
    _prepare(checkpoint, tmp_path / "s", settings)
    before = (tmp_path / "mine" / "bundle.json").read_bytes()
    with pytest.raises(TargetExists, match="max_batch_size is 16 there, 3 was asked for") as caught:
        _prepare(checkpoint, tmp_path / "s", settings, max_batch_size=3)
    assert "--force" not in str(caught.value)
    assert "--out" not in str(caught.value)
    assert (tmp_path / "mine" / "bundle.json").read_bytes() == before


def test_a_folder_with_somebodys_files_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    paths, _, _ = _prepare(checkpoint, tmp_path / "s")
    (paths.bundle / "notes.txt").write_text("mine")
    (paths.bundle / "bundle.json").unlink()
    with pytest.raises(TargetExists):
        _prepare(checkpoint, tmp_path / "s")
    assert "notes.txt" in files_in(paths.bundle)


def test_the_folder_is_the_same_however_the_choices_are_said(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "seekserve.yaml").write_text("limits: {max_batch_size: 3}\n")
    from_file = default_paths(str(checkpoint), load_settings(tmp_path / "seekserve.yaml"), Inputs(), {}, root=tmp_path)
    from_flag = default_paths(str(checkpoint), Settings(), flag_inputs({"max_batch_size": 3}), {}, root=tmp_path)
    from_environment = default_paths(
        str(checkpoint), Settings(), Inputs(), {"SEEKSERVE_MAX_BATCH_SIZE": "3"}, root=tmp_path
    )
    assert from_file == from_flag == from_environment


def test_a_checkpoint_is_known_by_where_it_lies_and_a_hub_id_by_itself(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    (checkpoint.parent / "link").symlink_to("ck")
    names = {deployment_folder(text, Inputs()) for text in (str(checkpoint), "ck", "./ck")}
    assert len(names) == 1
    assert deployment_folder("link", Inputs()).rpartition("-")[2] == names.pop().rpartition("-")[2]
    assert deployment_folder("deepseek-ai/DeepSeek-V3", Inputs()).startswith("DeepSeek-V3-")
