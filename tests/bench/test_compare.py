from __future__ import annotations

import json
from pathlib import Path

import pytest

from seekserve.bench.compare import compare_text, comparison, read_runs
from seekserve.errors import InputError


def run(policy: str, goodput: float | None, **more: object) -> dict[str, object]:
    return {"policy": policy, "trace": "t", "speed": 1.0, "seed": 0, "goodput_rps": goodput, **more}


def test_runs_are_matched_by_what_they_are_called() -> None:
    pairs = comparison([run("a", 1.0), run("b", 2.0)], [run("b", 3.0), run("c", 9.0)])
    assert [(a["goodput_rps"], b["goodput_rps"]) for _, a, b in pairs] == [(2.0, 3.0)]
    assert "1.500" in compare_text(pairs)


def test_two_single_runs_are_compared_whatever_they_are_called() -> None:
    assert "2.000" in compare_text(comparison([run("simulated", 1.0)], [run("live", 2.0)]))


def test_files_without_a_run_in_common_are_bad_input() -> None:
    with pytest.raises(InputError, match="no run in common"):
        comparison([run("a", 1.0), run("b", 1.0)], [run("c", 1.0)])


def test_a_run_that_is_not_valid_is_said_to_be_so() -> None:
    text = compare_text(comparison([run("a", 1.0)], [run("a", 1.0, live={"is_valid": False, "verdict": "NOT VALID"})]))
    assert "B is NOT VALID" in text


def test_what_is_missing_is_a_dash_and_not_a_nought() -> None:
    (line,) = (
        line for line in compare_text(comparison([run("a", None)], [run("a", 2.0)])).splitlines() if "goodput" in line
    )
    assert line.split() == ["goodput_rps", "-", "2", "-"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": []}', '{"runs": [3]}'])
def test_a_file_that_is_no_result_is_bad_input(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"a\.json"):
        read_runs(path)


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_runs(tmp_path / "none.json")
    good = tmp_path / "good.json"
    good.write_text(json.dumps({"runs": [run("a", 1.0)]}))
    assert read_runs(good) == [run("a", 1.0)]
