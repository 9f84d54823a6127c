from __future__ import annotations

import json

from click.testing import CliRunner

from seekserve.cli.doctor import command


def test_every_finding_is_printed_for_people() -> None:
    result = CliRunner().invoke(command, [], standalone_mode=False)
    assert result.exception is None
    assert result.return_value in (0, 3)
    for check in ("Python", "numpy", "tritonserver", "/dev/shm", "ports", "GPU", "MPI"):
        assert f"  {check} " in result.stdout


def test_json_has_the_same_findings_and_the_exit_code_follows_the_worst() -> None:
    result = CliRunner().invoke(command, ["--json"], standalone_mode=False)
    findings = json.loads(result.stdout)
    assert {"check", "severity", "found"} <= set(findings[0])
    has_error = any(finding["severity"] == "error" for finding in findings)
    assert result.return_value == (3 if has_error else 0)
