"""`seekserve render` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seekserve.cli import main
from seekserve.data import tiny_checkpoint_folder

Streams = pytest.CaptureFixture[str]


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(args))
    return int(caught.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> Path:
    monkeypatch.chdir(tmp_path)
    assert run("build-engine", str(tiny_checkpoint_folder()), "--out", "bundle", "--name", "tiny") == 0
    capsys.readouterr()
    return tmp_path


def test_rendering_says_what_it_made_and_what_comes_next(here: Path, capsys: Streams) -> None:
    assert run("render", "bundle", "--out", "repo") == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"rendered model tiny in {here / 'repo'}\n")
    assert f"next: seekserve launch {here / 'repo'}" in out
    assert err == ""
    assert sorted(path.name for path in (here / "repo" / "tiny").iterdir()) == [
        "1", "config.pbtxt", "policy.json", "rendered.json",
    ]  # fmt: skip


@pytest.mark.usefixtures("here")
def test_json_is_the_whole_of_stdout(capsys: Streams) -> None:
    assert run("render", "bundle", "--out", "repo", "--json", "--name", "other") == 0
    assert json.loads(capsys.readouterr().out)["model"] == "other"


def test_an_edited_policy_survives_until_forced(here: Path, capsys: Streams) -> None:
    assert run("render", "bundle", "--out", "repo") == 0
    (here / "repo/tiny/policy.json").write_text("{}", encoding="utf-8")
    assert run("render", "bundle", "--out", "repo") == 3
    assert "policy.json was edited" in capsys.readouterr().err
    assert run("render", "bundle", "--out", "repo", "--force") == 0


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        ((), 2, "which bundle?"),
        (("bundle",), 2, "where to?"),
        (("nowhere", "--out", "repo"), 2, "nowhere: no such folder"),
        (("bundle", "--out", "repo", "--name", "a/b"), 2, "flag --name: 'a/b' is no model name"),
        (("bundle", "--out", "repo", "--policy", "none.yaml"), 2, "--policy: no such file"),
        (("bundle", "--out", "."), 2, "would take it for a model"),
        (("bundle", "--out", "bundle/repo"), 2, "lies inside the bundle"),
        (("bundle", "--out", "repo", "--topology", "stock-engine"), 3, "runs trtllm-engine bundles"),
        (("bundle", "--out", "repo", "--topology", "llmapi"), 3, "was built for reference"),
        (("bundle", "--out", "repo", "--topology", "ensemble"), 2, "is not one of"),
        (("bundle", "--out", "repo", "--gpus", "0,1"), 3, "runs without a GPU"),
        (("bundle", "--out", "repo", "--gpus", "0;1"), 2, "give --gpus once for each instance"),
        (("bundle", "--out", "repo", "--instances", "0"), 2, "--instances"),
        (("bundle", "--out", "repo", "--stock-name", "x"), 2, "has no effect with --topology integrated"),
        (("bundle", "--out", "repo", "--dockerfile"), 2, "--base-image IMAGE"),
        (("bundle", "--out", "repo", "--dockerfile", "--base-image", "a b"), 2, "is no name of an image"),
    ],
)
def test_what_is_wrong_is_said_on_stderr_and_nothing_is_written(
    here: Path, capsys: Streams, args: tuple[str, ...], code: int, text: str
) -> None:
    assert run("render", *args) == code
    out, err = capsys.readouterr()
    assert (out, text in err) == ("", True)
    assert [path.name for path in here.iterdir()] == ["bundle"]


def test_streaming_can_be_switched_off(here: Path) -> None:
    assert run("render", "bundle", "--out", "repo", "--no-streaming") == 0
    assert "decoupled: false" in (here / "repo/tiny/config.pbtxt").read_text(encoding="utf-8")


def test_instances_are_rendered_and_reported(here: Path, capsys: Streams) -> None:
    assert run("render", "bundle", "--out", "repo", "--instances", "2") == 0
    assert "instances  2" in capsys.readouterr().out
    assert "count: 2" in (here / "repo/tiny/config.pbtxt").read_text(encoding="utf-8")


def test_a_dockerfile_goes_beside_the_repository_or_where_it_is_asked(here: Path, capsys: Streams) -> None:
    image = ("--base-image", "registry.local:5000/triton:mine")
    assert run("render", "bundle", "--out", "repo", "--dockerfile", *image) == 0
    assert "FROM registry.local:5000/triton:mine" in (here / "repo.docker/Dockerfile").read_text(encoding="utf-8")
    out = capsys.readouterr().out
    assert "next: python3 -m pip wheel" in out
    assert f"then: docker build --file {here / 'repo.docker/Dockerfile'}" in out
    assert "then: docker run --rm" in out
    assert run("render", "bundle", "--out", "repo", "--dockerfile", "D", *image) == 0
    assert (here / "D").is_file()
