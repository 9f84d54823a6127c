"""`seekserve inspect` as a command: exit codes, both streams, and the JSON that machines read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.checkpoint.toy import v3_toy

from seekserve.cli.inspect import command
from seekserve.errors import CheckpointError


def inspect(*arguments: str) -> tuple[int, str]:
    """Exit code and output; the command returns its code, the group exits with it."""
    result: Result = CliRunner().invoke(command, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.stdout


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return v3_toy(mtp_layers=1).write(tmp_path / "clean")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    toy = v3_toy()
    del toy.tensors["model.layers.1.mlp.experts.2.gate_proj.weight_scale_inv"]
    return toy.write(tmp_path / "broken")


def test_a_clean_checkpoint_exits_0_with_a_report_for_people(clean: Path) -> None:
    code, out = inspect(str(clean))
    assert code == 0
    for words in ("DeepSeek-V3 architecture", "active per token", "fp8_block found, fp8_block declared", "0 errors"):
        assert words in out


def test_errors_exit_2_and_the_report_is_still_printed(broken: Path) -> None:
    code, out = inspect(str(broken))
    assert code == 2
    assert "ERROR    scale-missing" in out
    assert "1 error, 0 warnings" in out


def test_json_has_family_parameters_precision_and_findings(clean: Path) -> None:
    code, out = inspect(str(clean), "--json")
    report: dict[str, Any] = json.loads(out)
    assert code == 0
    assert report["family"] == "deepseek_v3"
    assert report["precision"] == report["precision_declared"] == "fp8_block"
    parameters = report["parameters"]
    assert parameters["total"] == parameters["main"] + parameters["mtp"]
    assert 0 < parameters["active"] < parameters["main"]
    assert parameters["mtp"] > 0
    assert report["kv_bytes_per_token"] == {"bf16": 2 * 12 * 2, "fp8_e4m3": 2 * 12}
    assert all({"severity", "code", "file", "message"} <= finding.keys() for finding in report["findings"])


def test_json_of_a_broken_checkpoint_is_whole_and_exits_2(broken: Path) -> None:
    code, out = inspect(str(broken), "--json")
    [error] = [f for f in json.loads(out)["findings"] if f["severity"] == "error"]
    assert code == 2
    assert error["code"] == "scale-missing"
    assert error["file"] == "model-00002-of-00002.safetensors"


def test_nothing_to_read_is_an_error_without_a_report(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        inspect(str(tmp_path / "nowhere"))


def test_the_options_are_pinned() -> None:
    assert [parameter.opts for parameter in command.params] == [["checkpoint"], ["--json"]]
