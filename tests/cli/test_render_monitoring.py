"""`seekserve render --monitoring` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from seekserve.cli import main
from seekserve.data import tiny_checkpoint_folder

Streams = pytest.CaptureFixture[str]
FILES = [
    "alertmanager.yml",
    "grafana/dashboards/seekserve.json",
    "grafana/provisioning/dashboards/seekserve.yml",
    "grafana/provisioning/datasources/seekserve.yml",
    "prometheus.yml",
    "rendered.json",
    "rules/seekserve.alerts.yml",
    "rules/seekserve.recording.yml",
]


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(args))
    return int(caught.value.code or 0)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "bundle"
    assert run("build-engine", str(tiny_checkpoint_folder()), "--out", str(folder), "--name", "tiny") == 0
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams, bundle: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seekserve.yaml").write_text(f"paths: {{bundle: {bundle}}}\n")
    capsys.readouterr()
    return tmp_path


def settings(here: Path, text: str) -> None:
    with (here / "seekserve.yaml").open("a") as file:
        file.write(text + "\n")


def render(*args: str) -> int:
    return run("render", "--out", "repo", *args)


def test_the_files_lie_beside_the_repository_and_follow_the_settings(here: Path, capsys: Streams) -> None:
    settings(here, "policy: {kind: paced}\nserver: {host: 10.0.0.5, metrics_port: 9002}")
    settings(here, "monitoring: {dcgm: ['10.0.0.5:9400']}")
    assert render("--monitoring") == 0
    folder = here / "repo.monitoring"
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert found == sorted([*FILES, "dcgm/counters.csv"])
    assert f"monitoring  {folder}: prometheus.yml" in capsys.readouterr().out
    jobs = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    assert jobs[0]["static_configs"] == [{"targets": ["10.0.0.5:9002"]}]
    assert "SeekserveRung4" in (folder / "rules/seekserve.alerts.yml").read_text()


def test_an_edited_rule_survives_until_forced(here: Path, capsys: Streams) -> None:
    assert render("--monitoring=watch") == 0
    rules = here / "watch/rules/seekserve.alerts.yml"
    before = rules.read_text()
    rules.write_text(before + "# mine\n")
    assert render("--monitoring=watch") == 3
    assert "rules/seekserve.alerts.yml was edited" in capsys.readouterr().err
    assert render("--monitoring=watch", "--force") == 0
    assert rules.read_text() == before


def test_a_dry_run_and_json_show_all_and_write_nothing(here: Path, capsys: Streams) -> None:
    assert render("--monitoring", "--dry-run", "--json") == 0
    data = json.loads(capsys.readouterr().out)["monitoring"]
    assert (data["folder"], data["action"]) == (str(here / "repo.monitoring"), "create")
    assert sorted(data["files"]) == [f"repo.monitoring/{name}" for name in FILES]
    assert [path.name for path in here.iterdir()] == ["seekserve.yaml"]


@pytest.mark.parametrize(
    ("chosen", "args", "code", "text"),
    [
        ("monitoring: {objektive: 0.9}", ("--monitoring",), 2, "objektive: unknown key (did you mean objective?)"),
        ("monitoring: {objektive: 0.9}", (), 0, ""),
        ("monitoring: 3", ("--monitoring",), 2, "monitoring: expected an object, got 3"),
        ("", ("--monitoring=repo/watch",), 2, "lies inside the repository"),
        ("", ("--monitoring", "--topology", "llmapi"), 2, "--monitoring has no effect with --topology llmapi"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    here: Path, capsys: Streams, chosen: str, args: tuple[str, ...], code: int, text: str
) -> None:
    settings(here, chosen)
    assert render(*args) == code
    assert text in capsys.readouterr().err
    assert sorted(path.name for path in here.iterdir()) == [*(["repo"] if code == 0 else []), "seekserve.yaml"]


def test_a_folder_of_somebody_elses_is_left_alone(here: Path, capsys: Streams) -> None:
    (here / "watch").mkdir()
    (here / "watch/prometheus.yml").write_text("mine")
    assert render("--monitoring=watch") == 3
    assert "was not made by `seekserve render`" in capsys.readouterr().err
    assert not (here / "repo").exists()
