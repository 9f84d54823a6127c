"""Our own repositories: rendered ones pass, and what was changed or lost since is named."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.repository.checking.stock_repository import edit
from tests.repository.toy_bundle import FILES, toy_bundle, write_bundle

from seekserve.cli import cli
from seekserve.repository.checking import check_repository
from seekserve.repository.checking.check import _ordered
from seekserve.repository.checking.finding import error
from seekserve_backend.contract.bundle import Bundle, Parallel, TrtllmSpec
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.rungs import Rung

TRTLLM = dataclasses.replace(
    toy_bundle(),
    engine="trtllm-pytorch",
    parallel=Parallel(tp=2, gpus_per_node=8),
    trtllm=TrtllmSpec(version="1.2.1", model_dir="weights"),
)


def rendered(tmp_path: Path, bundle: Bundle | None = None) -> Path:
    folder = write_bundle(tmp_path / "bundle", bundle)
    result = CliRunner().invoke(cli, ["render", str(folder), "--out", str(tmp_path / "repo"), "--name", "chat"])
    assert result.exit_code == 0, result.output
    return tmp_path / "repo"


@pytest.mark.parametrize("bundle", [None, TRTLLM])
def test_what_we_render_passes(tmp_path: Path, bundle: Bundle | None) -> None:
    report = check_repository(rendered(tmp_path, bundle), hashes=True)
    assert not report.findings, report.text()


def test_a_damaged_bundle_is_named_and_a_changed_byte_only_with_hashes(tmp_path: Path) -> None:
    repository = rendered(tmp_path)
    weights = tmp_path / "bundle" / "weights" / "model-00001-of-00002.safetensors"
    weights.write_text("FIRST", encoding="utf-8")
    assert not check_repository(repository).findings
    [found] = check_repository(repository, hashes=True).findings
    assert found.rule == "bundle"
    assert "sha256" in found.message
    weights.unlink()
    assert "is missing" in check_repository(repository).text()
    assert set(FILES) > {"weights/model-00001-of-00002.safetensors"}


def test_a_policy_that_routes_to_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    repository = rendered(tmp_path)
    policy = Policy(kind="paced", rungs=(Rung(at=1.0, route_to="int8"),))
    (repository / "chat" / "policy.json").write_text(policy.to_json(), encoding="utf-8")
    [found] = check_repository(repository).findings
    assert (found.rule, found.file) == ("policy", "chat/policy.json")
    assert "'int8' under pressure, which is not in this repository" in found.message
    shutil.copytree(repository / "chat", repository / "int8")
    assert all(each.rule != "policy" or "int8/" in each.file for each in check_repository(repository).findings)


def test_an_edited_configuration_breaks_the_contract(tmp_path: Path) -> None:
    repository = rendered(tmp_path)
    edit(repository / "chat" / "config.pbtxt", "decoupled: true", "decoupled: false")
    assert any("streaming needs true" in found.message for found in check_repository(repository).errors)


def test_a_front_calls_an_engine_of_its_own(tmp_path: Path) -> None:
    repository = rendered(tmp_path)
    first = repository / "chat" / "config.pbtxt"
    edit(
        first,
        'key: "bundle_dir"',
        'key: "stock_model" value { string_value: "engine" } }\nparameters { key: "bundle_dir"',
    )
    shutil.copytree(repository / "chat", repository / "other")
    edit(repository / "other" / "config.pbtxt", 'name: "chat"', 'name: "other"')
    engine = repository / "engine"
    (engine / "1").mkdir(parents=True)
    text = 'name: "engine"\nbackend: "BACKEND"\nmodel_transaction_policy { decoupled: true }\n'
    for backend, rule, files in (
        ("tensorrtllm", "call-shared", {"other/config.pbtxt"}),
        ("seekserve", "call-kind", {"chat/config.pbtxt", "other/config.pbtxt"}),
    ):
        (engine / "config.pbtxt").write_text(text.replace("BACKEND", backend), encoding="utf-8")
        found = [each for each in check_repository(repository).findings if each.rule.startswith("call-")]
        assert {each.rule for each in found} == {rule}
        assert {each.file for each in found} == files
        assert all(each.line for each in found)


def test_a_broken_policy_is_named_by_its_file(tmp_path: Path) -> None:
    repository = rendered(tmp_path)
    edit(repository / "chat" / "policy.json", '"schema_version": 2', '"schema_version": 2, "classses": {}')
    assert any(
        found.file == "chat/policy.json" and "classses" in found.message
        for found in check_repository(repository).errors
    )


def test_another_version_than_the_bundle_was_checked_for_is_an_error(tmp_path: Path) -> None:
    report = check_repository(rendered(tmp_path, TRTLLM), version="1.3.0rc20")
    assert [found.rule for found in report.errors] == ["version"]


@pytest.mark.parametrize(
    ("ids", "count", "said"),
    [
        ("0,1;2,3", 2, ""),
        ("0,1;1,2", 2, "names GPU 1 twice"),
        ("0,1,2", 1, "3 GPUs for a replica of 2 ranks"),
        ("0,1", 2, "1 groups for 2 instances"),
        ("0-1", 1, "not of the form"),
    ],
)
def test_gpus_of_the_instances_are_disjoint_and_enough(tmp_path: Path, ids: str, count: int, said: str) -> None:
    repository = rendered(tmp_path, TRTLLM)
    config = repository / "chat" / "config.pbtxt"
    text = config.read_text(encoding="utf-8").replace("count: 1", f"count: {count}")
    text += f'parameters {{ key: "gpu_device_ids" value {{ string_value: "{ids}" }} }}\n'
    config.write_text(text, encoding="utf-8")
    found = [each.message for each in check_repository(repository).errors if each.rule == "gpus"]
    assert (found == []) if not said else any(said in message for message in found)


@pytest.mark.parametrize(
    ("bundle", "first", "second", "said"),
    [
        (TRTLLM, (), (), "loads onto GPU 0, 1, as chat does"),
        (TRTLLM, (), ("--gpus", "1,2"), "loads onto GPU 1, as chat does"),
        (TRTLLM, ("--gpus", "0,1"), ("--gpus", "2,3"), ""),
        (None, (), (), ""),
    ],
)
def test_two_models_on_one_gpu_are_told(
    tmp_path: Path, bundle: Bundle | None, first: tuple[str, ...], second: tuple[str, ...], said: str
) -> None:
    folder, repository = write_bundle(tmp_path / "bundle", bundle), tmp_path / "repo"
    for name, gpus in (("chat", first), ("other", second)):
        made = CliRunner().invoke(cli, ["render", str(folder), "--out", str(repository), "--name", name, *gpus])
        assert made.exit_code == 0, made.output
    report = check_repository(repository)
    assert not report.errors
    found = [(each.rule, each.file, each.message.split(":")[0]) for each in report.findings]
    assert found == ([("gpus-shared", "other/config.pbtxt", said)] if said else [])


def test_the_command_prints_the_findings_and_exits_2(tmp_path: Path) -> None:
    repository = rendered(tmp_path)
    good = CliRunner().invoke(cli, ["check", str(repository)])
    assert (good.exit_code, "is fit to serve" in good.output) == (0, True)
    (repository / "tokenizer").mkdir()
    bad = CliRunner().invoke(cli, ["check", str(repository), "--json"])
    assert bad.exit_code == 2
    assert '"rule": "no-config"' in bad.output


def test_errors_come_first_and_nothing_twice() -> None:
    one = error("a", "z", 1, "x")
    assert _ordered([one, one, error("a", "a", 9, "x")]) == [error("a", "a", 9, "x"), one]
