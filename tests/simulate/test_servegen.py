"""Composed traces follow the day's rate and the lengths of the aggregate, anew for each seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seekserve.errors import InputError
from seekserve.simulate.traces import read_trace

AGGREGATE = {
    "rate_per_s_by_window_start_s": [[0, 2.0], [600, 8.0]],
    "input_tokens_pdf_by_bucket_low": {"0": 0.5, "1000": 0.5},
    "output_tokens_pdf_by_bucket_low": {"100": 1.0},
    "interarrival_cv_p90": 1.9,
}


def write(folder: Path, data: object) -> Path:
    path = folder / "s.json"
    path.write_text(json.dumps(data))
    return path


def test_the_rate_follows_the_windows_and_lengths_their_buckets(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path, AGGREGATE), rows=6000).rows(3)
    early = sum(row.time_s < 600.0 for row in rows)
    later = sum(600.0 <= row.time_s < 1100.0 for row in rows)
    assert 900 <= early <= 1500
    assert 3300 <= later <= 4700
    assert 0.45 < sum(row.prompt_tokens >= 999 for row in rows) / len(rows) < 0.55
    assert all(99 <= row.output_tokens < 200 for row in rows)
    assert sorted(rows, key=lambda row: row.time_s) == rows


def test_a_seed_gives_the_same_rows_and_another_one_others(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, AGGREGATE), rows=50)
    assert trace.rows(1) == trace.rows(1)
    assert trace.rows(1) != trace.rows(2)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "lacks 'rate_per_s_by_window_start_s'"),
        ({**AGGREGATE, "rate_per_s_by_window_start_s": [[0]]}, "s.json"),
        ({**AGGREGATE, "input_tokens_pdf_by_bucket_low": {"x": 1}}, "'x'"),
    ],
)
def test_another_json_is_refused(tmp_path: Path, data: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_trace(write(tmp_path, data))


def test_what_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        read_trace(tmp_path / "s.json")
