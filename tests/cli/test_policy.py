"""`seekserve policy`: exit codes and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seekserve.cli import cli, main
from seekserve_backend.contract.policy import Policy

CHAT = (
    "kind: paced\ndefault_class: chat\nclasses:\n  chat: {max_queue_requests: 9, deadline_ms: 100, tpot_slo_ms: 50}\n"
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["policy", *map(str, arguments)])


def test_check_names_the_policy(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(CHAT)
    result = run("check", tmp_path / "p.yaml")
    assert (result.exit_code, "kind paced, classes chat" in result.output) == (0, True)


def test_check_shows_the_routes_and_knows_the_ready_made_policy() -> None:
    result = run("check", "guide")
    assert result.exit_code == 0
    assert [line.strip() for line in result.output.splitlines()[1:]] == [
        "route 1: x-request-type: offline -> offline",
        "route 2: /v1/chat/completions -> chat",
        "route 3: /v1/batch/completions -> batch",
        "otherwise -> chat",
    ]
    assert Policy.from_data(json.loads(run("show", "guide").output), "shown").classes["batch"].max_running == 32


def test_check_reports_every_fault_and_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yaml").write_text(CHAT + "paced: {slo_margn: 0.9}\nmax_prompt_byte: 3\n")
    with pytest.raises(SystemExit) as left:
        main(["policy", "check", str(tmp_path / "p.yaml")])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "did you mean slo_margin?" in said
    assert "did you mean max_prompt_bytes?" in said


@pytest.mark.parametrize("kind", ["fcfs", "static", "seed", "paced"])
def test_show_prints_what_the_backend_reads(tmp_path: Path, kind: str) -> None:
    shown = run("show", "--kind", kind)
    assert Policy.from_data(json.loads(shown.output), "shown").kind == kind
    (tmp_path / "p.json").write_text(shown.output)
    assert run("show", tmp_path / "p.json").output == shown.output


def test_diff_prints_dotted_names_with_both_values(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CHAT)
    (tmp_path / "b.yaml").write_text(CHAT.replace("50", "60") + "paced: {slo_margin: 0.9}\n")
    lines = run("diff", tmp_path / "a.yaml", tmp_path / "b.yaml").output.splitlines()
    assert [line.split() for line in lines] == [
        ["classes.chat.tpot_slo_ms", "50.0", "->", "60.0"],
        ["paced.slo_margin", "0.92", "->", "0.9"],
    ]
    (tmp_path / "b.yaml").write_text(CHAT + "routes: [{class: chat, tenant: a}]\n")
    (tmp_path / "c.yaml").write_text(CHAT + "routes: [{class: chat, tenant: b}]\n")
    routed = run("diff", tmp_path / "b.yaml", tmp_path / "c.yaml").output.split()
    assert routed == ["routes[0].tenant", '"a"', "->", '"b"']
    assert "no difference" in run("diff", tmp_path / "a.yaml", tmp_path / "a.yaml").output
