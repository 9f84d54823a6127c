"""The pipelines of docs/ci-gate.md: they parse, name options that exist, and do not let a failed soak through."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from seekserve.cli import cli


@pytest.fixture
def blocks(repository_root: Path) -> dict[str, str]:
    text = (repository_root / "docs" / "ci-gate.md").read_text("utf-8")
    bash, github, gitlab = re.findall(r"```\w+\n(.*?)```", text, re.DOTALL)
    return {"bash": bash, "github": github, "gitlab": gitlab}


def gate(blocks: dict[str, str], folder: Path, *, soak_code: int) -> tuple[int, list[list[str]]]:
    """With a `seekserve` that writes down how it was called."""
    fake = folder / "bin" / "seekserve"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\nprintf "%s\\t" "$@" >> {folder}/calls\nprintf "\\n" >> {folder}/calls\n'
        f'[ "$1" != soak ] || exit {soak_code}\n'
    )
    fake.chmod(0o755)
    (folder / "gate.sh").write_text(blocks["bash"])
    done = subprocess.run(
        ["bash", "gate.sh", "repository", "backends", "bundle", "slo.yaml"], cwd=folder,
        env={"PATH": f"{fake.parent}:/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    calls = (folder / "calls").read_text().splitlines()
    return done.returncode, [[part for part in line.split("\t") if part] for line in calls]


@pytest.mark.parametrize(("soak_code", "expected"), [(0, 0), (1, 1), (4, 1)])
def test_only_a_soak_that_passed_lets_the_pipeline_on(
    blocks: dict[str, str], tmp_path: Path, soak_code: int, expected: int
) -> None:
    code, calls = gate(blocks, tmp_path, soak_code=soak_code)
    names = [call[0] for call in calls]
    more = [] if soak_code == 0 else ["diagnose", "collect"]
    assert (code, names) == (expected, ["check", "launch", "soak", *more, "stop"])
    for call in calls:
        check_options(call)


def check_options(call: list[str]) -> None:
    command = cli.get_command(click.Context(cli), call[0])
    assert command is not None
    known = {spelling for parameter in command.params for spelling in parameter.opts}
    assert {part for part in call[1:] if part.startswith("--")} <= known


def test_both_pipelines_parse_and_wait_for_the_gate(blocks: dict[str, str]) -> None:
    github, gitlab = yaml.safe_load(blocks["github"]), yaml.safe_load(blocks["gitlab"])
    assert github["jobs"]["deploy"]["needs"] == "soak"
    assert gitlab["stages"].index(gitlab["soak"]["stage"]) < gitlab["stages"].index(gitlab["deploy"]["stage"])
    steps = [step["run"] for job in github["jobs"].values() for step in job["steps"] if "run" in step]
    for line in [*steps, *gitlab["soak"]["script"], *gitlab["deploy"]["script"]]:
        words = shlex.split(line)
        if words[0] == "seekserve":
            check_options(words[1:])
        else:
            assert (words[0], len(words)) == ("./gate.sh", 5)
