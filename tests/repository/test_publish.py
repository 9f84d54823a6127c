"""The render job: flags over file over default, and nothing written unless everything is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_bundle import toy_bundle, write_bundle

from seekserve.errors import BundleError, ConfigError, InputError
from seekserve.output import files_in
from seekserve.repository.check import parse_config
from seekserve.repository.publish import RenderReport, RenderRequest, publish
from seekserve.settings import PathSettings, Settings
from seekserve_backend.contract.policy import Policy


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "a 'b' \"c\"" / "bundle")


def run(bundle: Path | None, out: Path | None, settings: Settings | None = None, **more: object) -> RenderReport:
    return publish(RenderRequest(bundle=bundle, out=out, **more), settings or Settings())  # type: ignore[arg-type]


def test_the_rendered_model_names_its_bundle_and_carries_its_policy(bundle: Path, tmp_path: Path) -> None:
    report = run(bundle, tmp_path / "repo")
    folder = tmp_path / "repo" / "chat"
    config = parse_config((folder / "config.pbtxt").read_text(encoding="utf-8"))
    assert config.parameters["bundle_dir"].string_value == str(bundle)
    assert (folder / config.parameters["policy_file"].string_value).read_text() == Policy().to_json()
    assert (folder / "1").is_dir()
    assert f"rendered model chat in {tmp_path / 'repo'}" in report.text()
    assert json.loads(report.json_text())["status"] == "rendered"


def test_rendering_again_changes_nothing(bundle: Path, tmp_path: Path) -> None:
    run(bundle, tmp_path / "repo")
    assert json.loads(run(bundle, tmp_path / "repo").json_text())["status"] == "unchanged"


def test_a_dry_run_prints_every_file_and_writes_none(bundle: Path, tmp_path: Path) -> None:
    report = run(bundle, tmp_path / "repo", dry_run=True)
    assert not (tmp_path / "repo").exists()
    for part in ("would create model chat", "--- chat/config.pbtxt", 'backend: "seekserve"', "--- chat/policy.json"):
        assert part in report.text()
    files = json.loads(report.json_text())["files"]
    run(bundle, tmp_path / "repo")
    assert {path: (tmp_path / "repo" / path).read_text() for path in files_in(tmp_path / "repo")} == files


def test_flags_win_over_the_file(bundle: Path, tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("name: mine\n", encoding="utf-8")
    settings = Settings(
        path=tmp_path / "seekserve.yaml",
        policy={"name": "inline"},
        paths=PathSettings(bundle=bundle, repository=tmp_path / "repo"),
    )
    report = run(None, None, settings)
    assert (report.model_name, report.policy.name) == ("chat", "inline")
    report = run(None, None, settings, name="from-flag", policy=policy)
    assert (report.model_name, report.policy.name) == ("from-flag", "mine")
    assert sorted(path.name for path in (tmp_path / "repo").iterdir()) == ["chat", "from-flag"]


def test_a_policy_file_that_the_settings_name_is_read(bundle: Path, tmp_path: Path) -> None:
    settings = Settings(path=tmp_path / "seekserve.yaml", policy=tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"policy in .*seekserve\.yaml: no such file"):
        run(bundle, tmp_path / "repo", settings)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "x" * 65, "a\nb", "{{ 7*7 }}"])
def test_a_bad_name_writes_nothing(bundle: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is no model name"):
        run(bundle, tmp_path / "repo", name=name)
    assert not (tmp_path / "repo").exists()


def test_a_damaged_bundle_is_reported_with_every_fault(bundle: Path, tmp_path: Path) -> None:
    (bundle / "tokenizer" / "tokenizer.json").unlink()
    (bundle / "weights" / "config.json").write_text("longer than before", encoding="utf-8")
    with pytest.raises(BundleError, match="2 problems") as caught:
        run(bundle, tmp_path / "repo")
    assert "tokenizer/tokenizer.json is missing" in str(caught.value)
    assert "weights/config.json has 18 bytes where bundle.json says 3" in str(caught.value)
    assert not (tmp_path / "repo").exists()


def test_missing_places_are_asked_for(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which bundle"):
        run(None, tmp_path)
    with pytest.raises(InputError, match="where to"):
        run(bundle, None)


def test_a_bundle_with_a_bad_name_needs_a_name(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", toy_bundle(name="no/name"))
    with pytest.raises(InputError, match="name in the bundle: 'no/name'"):
        run(folder, tmp_path / "repo")
    assert run(folder, tmp_path / "repo", name="good").model_name == "good"
