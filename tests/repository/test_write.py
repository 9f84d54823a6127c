"""Writing a model folder: whole or not at all, and nobody else's work is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.errors import ConflictError, InputError, TargetExists
from seekserve.output import files_in, write_files
from seekserve.repository.write import WriteResult, plan_write, write_model

FILES = {"m/config.pbtxt": "config", "m/policy.json": "policy", "m/1/.keep": ""}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repo"


def write(repository: Path, files: dict[str, str] = FILES, *, force: bool = False) -> WriteResult:
    result = plan_write(repository, "m", files, bundle_dir=repository.parent / "bundle", force=force)
    write_model(result)
    return result


def test_a_new_repository_holds_the_model_and_nothing_else(repository: Path) -> None:
    assert write(repository).action == "create"
    assert files_in(repository) == ["m/1/.keep", "m/config.pbtxt", "m/policy.json", "m/rendered.json"]


def test_planning_writes_nothing(repository: Path) -> None:
    plan_write(repository, "m", FILES, bundle_dir=repository.parent / "bundle", force=False)
    assert not repository.exists()


def test_the_same_content_is_kept(repository: Path) -> None:
    write(repository)
    before = (repository / "m" / "config.pbtxt").stat()
    assert write(repository).action == "keep"
    assert (repository / "m" / "config.pbtxt").stat().st_ino == before.st_ino


def test_other_content_replaces_what_was_rendered_before(repository: Path) -> None:
    write(repository)
    assert write(repository, {"m/config.pbtxt": "new"}).action == "replace"
    assert files_in(repository) == ["m/config.pbtxt", "m/rendered.json"]


def test_a_missing_file_is_put_back(repository: Path) -> None:
    write(repository)
    (repository / "m" / "policy.json").unlink()
    assert write(repository).action == "replace"
    assert (repository / "m" / "policy.json").read_text() == "policy"


@pytest.mark.parametrize(
    ("path", "word"), [("policy.json", "policy.json was edited"), ("notes.txt", "notes.txt was added")]
)
def test_edited_work_is_kept_unless_forced(repository: Path, path: str, word: str) -> None:
    write(repository)
    (repository / "m" / path).write_text("mine", encoding="utf-8")
    with pytest.raises(TargetExists, match=word):
        write(repository, {"m/config.pbtxt": "new"})
    assert (repository / "m" / path).read_text() == "mine"
    assert write(repository, force=True).action == "replace"
    assert "notes.txt" not in files_in(repository / "m")


def test_a_folder_of_somebody_else_is_never_replaced(repository: Path) -> None:
    write_files(repository, {"m/config.pbtxt": "theirs", "m/1/model.py": ""})
    for force in (False, True):
        with pytest.raises(TargetExists, match="was not made by"):
            write(repository, force=force)
    assert files_in(repository) == ["m/1/model.py", "m/config.pbtxt"]


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"made_by": "x", "files": {}}', '{"made_by": "seekserve"}'])
def test_a_manifest_of_another_make_counts_for_nothing(repository: Path, manifest: str) -> None:
    write_files(repository, {"m/config.pbtxt": "theirs", "m/rendered.json": manifest})
    with pytest.raises(TargetExists, match="was not made by"):
        write(repository, force=True)


def test_a_link_in_the_models_place_is_left_alone(repository: Path, tmp_path: Path) -> None:
    write(tmp_path / "other")
    repository.mkdir()
    (repository / "m").symlink_to(tmp_path / "other" / "m")
    with pytest.raises(TargetExists):
        write(repository, {"m/config.pbtxt": "new"}, force=True)


def test_adding_a_model_touches_no_other(repository: Path) -> None:
    write_files(repository, {"other/config.pbtxt": "theirs", "other/1/model.py": "code"})
    before = {path: (repository / path).stat() for path in files_in(repository)}
    write(repository)
    assert {path: (repository / path).stat() for path in before} == before


def test_a_folder_that_is_no_model_stops_the_rendering(repository: Path) -> None:
    write_files(repository, {"tokenizer/tokenizer.json": "{}"})
    with pytest.raises(ConflictError, match=r"tokenizer/ has no config\.pbtxt"):
        write(repository)
    assert files_in(repository) == ["tokenizer/tokenizer.json"]


@pytest.mark.parametrize(
    ("repository", "bundle", "word"),
    [
        ("repo", "repo/bundle", "lies inside the repository"),
        ("repo", "repo/deep/bundle", "lies inside the repository"),
        ("bundle", "bundle", "lies inside the bundle"),
        ("bundle/repo", "bundle", "lies inside the bundle"),
    ],
)
def test_bundle_and_repository_may_not_lie_in_each_other(
    tmp_path: Path, repository: str, bundle: str, word: str
) -> None:
    with pytest.raises(InputError, match=word):
        plan_write(tmp_path / repository, "m", FILES, bundle_dir=tmp_path / bundle, force=False)


def test_another_bundle_is_no_repository(tmp_path: Path) -> None:
    write_files(tmp_path, {"other/bundle.json": "{}"})
    with pytest.raises(InputError, match="is a bundle, not a model repository"):
        write(tmp_path / "other")


def test_a_file_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        write(tmp_path / "f")
