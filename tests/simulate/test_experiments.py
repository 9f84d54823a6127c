"""The arithmetic of the experiments' tables, and that one of them runs from end to end."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def lab(repository_root: Path) -> ModuleType:
    path = repository_root / "scripts" / "experiments" / "lab.py"
    spec = importlib.util.spec_from_file_location("experiments_lab", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_spread_is_a_mean_with_its_interval(lab: ModuleType) -> None:
    assert lab.spread([2.0]) == "2.00"
    assert lab.spread([1.0, 3.0], ".1f") == "2.0 (1.0-3.0)"
    assert lab.spread([math.nan]) == "-"
    assert lab.spread([1.0, math.inf]) == "never in 1 of 2"


def test_a_ratio_is_of_means_with_seeds_in_pairs(lab: ModuleType) -> None:
    assert lab.ratio([3.0, 6.0], [1.0, 2.0]) == (3.0, "3.00x (3.00-3.00)")
    assert lab.ratio([3.0], [2.0]) == (1.5, "1.50x")
    assert lab.ratio([3.0], [0.0])[0] == math.inf


def test_a_table_is_markdown(lab: ModuleType) -> None:
    assert lab.table(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_halves_of_a_trace_do_not_overlap(lab: ModuleType) -> None:
    small = lab.Lab(seeds=1, rows=10)
    whole = lab.Lab(seeds=1, rows=10**9)
    assert small.trace("code", 1).rows(0) != small.trace("code", 2).rows(0)
    assert [len(whole.trace("code", half).rows(0)) for half in (1, 2)] == [4409, 4409]


def test_a_knee_lies_between_a_load_that_holds_and_one_that_does_not(lab: ModuleType) -> None:
    small = lab.Lab(seeds=1, rows=300)
    (found,) = small.knees([small.case("conversation", "static:4:1")], low=0.02, high=2.0)[0]
    assert 0.1 < found < 4.0


def test_an_unknown_experiment_is_named_with_those_there_are(repository_root: Path) -> None:
    script = repository_root / "scripts" / "experiments" / "run.py"
    done = subprocess.run([sys.executable, str(script), "e99"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no experiment is named e99; there are e1, e2" in done.stderr
