"""`seekserve simulate` as a command: exit codes, JSON, the page, and faults named by flag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seekserve.cli import simulate
from seekserve.errors import InputError, SeekserveError
from seekserve.simulate import arrivals, ask, fleet

SLO = "classes: {chat: {share: 0.7, ttft_ms: 1000, tpot_ms: 50}, batch: {share: 0.3, e2e_ms: 60000}}\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    lines = [f"{1000 * n},{500 + 37 * (n % 9)},{20 + n % 7},0" for n in range(80)]
    (tmp_path / "t.csv").write_text(
        "timestamp_ms,input_length,output_length,reusable_prefix_tokens\n" + "\n".join(lines)
    )
    (tmp_path / "slo.yaml").write_text(SLO)
    return str(tmp_path / "t.csv"), str(tmp_path / "slo.yaml")


def run(*arguments: str) -> tuple[str, SeekserveError | None]:
    result = CliRunner().invoke(simulate.command, list(arguments), standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SeekserveError):
        raise result.exception
    return result.stdout, result.exception


def test_the_defaults_written_for_help_are_those_of_the_library() -> None:
    """They stand in the command so that `--help` imports nothing."""
    assert simulate.PROCESSES == arrivals.PROCESSES
    assert tuple(fleet.ROUTERS) == simulate.ROUTERS
    assert simulate.DEFAULT_ENGINE == ask.DEFAULT_ENGINE


def test_json_has_a_run_for_each_trace_speed_seed_and_policy(files: tuple[str, str]) -> None:
    trace, slo = files
    out, error = run(
        *("--trace", trace, "--slo", slo, "--policy", "paced,fcfs,static:80:1.5", "--speed", "1,4", "--seeds", "2"),
        "--json",
    )
    assert error is None
    runs: list[dict[str, Any]] = json.loads(out)["runs"]
    assert [(r["policy"], r["speed"], r["seed"]) for r in runs[:4]] == [
        ("paced", 1.0, 0),
        ("fcfs", 1.0, 0),
        ("static:80:1.5", 1.0, 0),
        ("paced", 1.0, 1),
    ]
    assert len(runs) == 12
    for name in (
        "offered_rps",
        "goodput_rps",
        "attainment",
        "shed_ratio",
        "wasted_tokens",
        "ttft_p99_s",
        "tpot_p99_ms",
    ):
        assert isinstance(runs[0][name], (int, float))
    assert runs[0]["trace"] == "t"
    assert runs[0]["attainment"] == 1.0


def test_the_page_is_written_whole(files: tuple[str, str], tmp_path: Path) -> None:
    trace, slo = files
    out, error = run("--trace", trace, "--slo", slo, "--speed", "1,3", "--report", str(tmp_path / "new" / "r.html"))
    assert error is None
    assert "paced" in out
    assert (tmp_path / "new" / "r.html").read_text().endswith("</html>\n")


def test_every_option_of_the_plant_and_the_clients_is_taken(files: tuple[str, str]) -> None:
    trace, slo = files
    same = ("--trace", trace, "--slo", slo, "--policy", "paced", "--speed", "10", "--json")
    plain, _ = run(*same)
    changed = {
        ("--slowdown", "1.5"),
        ("--noise", "0.2"),
        ("--stall-at-s", "2"),
        ("--fail-at-s", "3"),
        ("--draft-tokens", "2"),
        ("--arrivals", "gamma"),
        ("--long-share", "0.1"),
        ("--replicas", "2"),
        ("--tenants", "a=2,b=1"),
        ("--max-batch-size", "1"),
        ("--rows", "40"),
        ("--skip-rows", "40"),
    }
    for flags in changed:
        out, error = run(*same, *flags)
        assert error is None
        assert out != plain, flags


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "nothing"], "'nothing' is neither known nor a file"),
        (["--speed", "1,fast"], "--speed '1,fast'"),
        (["--speed", "0"], "--speed '0'"),
        (["--engine", "abacus"], "--engine 'abacus' is neither in the catalogue nor the folder of a bundle"),
        (["--controller", "DeepSeek-V3 / R1 FP8, 8 x H200, TP 8, EP 9"], "did you mean"),
        (["--tenants", "a"], None),
        (["--columns", "when"], "--columns"),
        (["--rows", "5", "--skip-rows", "80"], "80 of them are to be left out"),
        (["--replicas", "2", "--router", "prefix-aware"], "no block hashes"),
    ],
)
def test_faults_are_named_by_flag(files: tuple[str, str], arguments: list[str], words: str | None) -> None:
    trace, slo = files
    _, error = run("--trace", trace, "--slo", slo, *arguments)
    if words is None:
        assert error is None
    else:
        assert isinstance(error, InputError)
        assert words in str(error)


def test_a_promise_for_each_trace_or_one_for_all(files: tuple[str, str]) -> None:
    trace, slo = files
    _, error = run("--trace", trace, "--slo", slo, "--slo", slo)
    assert isinstance(error, InputError)
    assert "2 times for 1 traces" in str(error)
    _, error = run("--trace", trace, "--trace", trace, "--slo", slo)
    assert "two traces are named t" in str(error)
