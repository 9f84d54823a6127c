from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.server.models import ServedModel, all_behind_ours, read_models

OURS = (
    'backend: "seekserve"\nparameters {{ key: "bundle_dir" value {{ string_value: "{bundle}" }} }}\n'
    'parameters {{ key: "policy_file" value {{ string_value: "policy.json" }} }}\n'
)


def _model(repository: Path, name: str, config: str, *, version: str | None = "1", policy: bool = True) -> Path:
    folder = repository / name
    folder.mkdir(parents=True)
    if version is not None:
        (folder / version).mkdir()
    (folder / "config.pbtxt").write_text(config)
    if policy:
        (folder / "policy.json").write_text("{}")
    return folder


def _bundle(tmp_path: Path) -> Path:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "bundle.json").write_text("{}")
    return tmp_path / "bundle"


def test_a_rendered_repository_is_read_with_its_bundle_and_policy(tmp_path: Path) -> None:
    bundle, repository = _bundle(tmp_path), tmp_path / "repo"
    _model(repository, "b", OURS.format(bundle=bundle))
    _model(repository, "a", 'backend: "other"')
    (repository / "README").touch()
    models, problems = read_models(repository)
    assert problems == []
    assert [(model.name, model.is_ours) for model in models] == [("a", False), ("b", True)]
    assert models[1].bundle_dir == bundle
    assert models[1].policy_file == repository / "b" / "policy.json"


@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("m", "backend: ", "does not parse"),
        ("m", 'name: "n" backend: "other"', "says name 'n', the folder is 'm'"),
        ("m", "", "names no backend"),
        ("a b", 'backend: "other"', "a model name holds"),
        ("trailing.", 'backend: "other"', "a model name holds"),
        ("m", 'backend: "seekserve"', "no parameter bundle_dir"),
        ("m", OURS.format(bundle="/nowhere"), "/nowhere holds no bundle.json"),
    ],
)
def test_what_would_stop_a_model_from_loading_is_one_sentence(
    tmp_path: Path, name: str, config: str, sentence: str
) -> None:
    _model(tmp_path / "repo", name, config)
    _, problems = read_models(tmp_path / "repo")
    assert len(problems) == 1
    assert sentence in problems[0]
    assert repr(name) in problems[0]


def test_a_missing_version_folder_and_a_missing_policy_are_both_said(tmp_path: Path) -> None:
    _model(tmp_path / "repo", "m", OURS.format(bundle=_bundle(tmp_path)), version=None, policy=False)
    _, problems = read_models(tmp_path / "repo")
    assert len(problems) == 2


def test_an_llmapi_model_whose_code_was_not_copied_is_no_model_yet(tmp_path: Path) -> None:
    folder = _model(tmp_path / "repo", "m", 'backend: "python"', policy=False)
    (folder / "1" / "model.yaml").touch()
    [problem] = read_models(tmp_path / "repo")[1]
    assert "1/model.py is missing beside model.yaml; copy it from the image that will serve" in problem
    (folder / "1" / "model.py").touch()
    assert read_models(tmp_path / "repo")[1] == []


def test_a_link_out_of_the_repository_is_refused(tmp_path: Path) -> None:
    outside = _model(tmp_path / "elsewhere", "m", 'backend: "other"')
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "m").symlink_to(outside)
    _, problems = read_models(tmp_path / "repo")
    assert "leads out of the repository" in problems[0]


def test_only_the_models_that_are_asked_for_are_read_and_each_must_be_there(tmp_path: Path) -> None:
    _model(tmp_path / "repo", "a", 'backend: "other"')
    _model(tmp_path / "repo", "broken", "backend: ")
    models, problems = read_models(tmp_path / "repo", only=("a",))
    assert ([model.name for model in models], problems) == (["a"], [])
    _, problems = read_models(tmp_path / "repo", only=("a", "b"))
    assert problems == [f"repository {tmp_path / 'repo'} holds no model 'b'"]


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_or_missing_repository_names_the_command_that_makes_one(tmp_path: Path, exists: bool) -> None:
    repository = tmp_path / "repo"
    if exists:
        repository.mkdir()
    models, problems = read_models(repository)
    assert models == ()
    assert len(problems) == 1
    assert "seekserve render" in problems[0]


def test_a_stock_model_behind_one_of_ours_is_known_and_another_is_not(tmp_path: Path) -> None:
    def served(name: str, backend: str, **parameters: str) -> ServedModel:
        return ServedModel(
            name=name, backend=backend, folder=tmp_path, bundle_dir=None, policy_file=None, parameters=parameters
        )

    front, stock = served("chat", "seekserve", stock_model="tensorrt_llm"), served("tensorrt_llm", "tensorrtllm")
    assert all_behind_ours((front, stock))
    assert not all_behind_ours((front, stock, served("other", "python")))
    assert not all_behind_ours((stock,))
