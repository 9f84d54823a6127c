"""Every form of trace is read alike, and a fault is named with its file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seekserve.errors import InputError
from seekserve.simulate.traces import TraceRow, parse_columns, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:47.2500000,374,44
2023-11-16 18:15:46.0000000,396,0
"""
DERIVED = "timestamp_ms,input_length,output_length,reusable_prefix_tokens\n0,6758,500,0\n3000,7322,490,6656\n"


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_azure_rows_come_in_the_order_of_time_from_zero(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, AZURE)).rows(0) == [TraceRow(0.0, 396, 1), TraceRow(1.25, 374, 44)]


def test_the_derived_csv_says_what_was_seen_before(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, DERIVED)).rows(0) == [TraceRow(0.0, 6758, 500), TraceRow(3.0, 7322, 490, 6656)]


def test_mooncake_s_hashes_tell_what_an_unlimited_cache_would_hold(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 500, "input_length": 1500, "output_length": 6, "hash_ids": [1, 2, 9]},
        {"timestamp": 900, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, lines)) + "\n\n", "m.jsonl")
    rows = read_trace(path).rows(0)
    assert [row.cached_tokens for row in rows] == [0, 1024, 600]
    assert rows[1] == TraceRow(0.5, 1500, 6, 1024, (1, 2, 9))


def test_columns_of_another_csv_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "when,in,out\n1.5,10,2\n2.5,20,4\n")
    columns = parse_columns("time_s=when,prompt=in,output=out")
    assert read_trace(path, columns).rows(0) == [TraceRow(0.0, 10, 2), TraceRow(1.0, 20, 4)]


def test_a_part_of_a_trace_starts_at_zero_again(tmp_path: Path) -> None:
    text = "when,in,out\n" + "".join(f"{n},10,{n + 1}\n" for n in range(6))
    columns = parse_columns("time_s=when,prompt=in,output=out")
    rows = read_trace(write(tmp_path, text), columns, skip=2, rows=3).rows(0)
    assert [(row.time_s, row.output_tokens) for row in rows] == [(0.0, 3), (1.0, 4), (2.0, 5)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["has the columns (none)"]),
        ("a,b\n1,2\n", ["a, b", "--columns"]),
        (AZURE + "yesterday,1,1\n", ["line 4", "yesterday"]),
        (AZURE + "2023-11-16 18:15:48,1\n", ["line 4", "a column is missing"]),
        (AZURE + "2023-11-16 18:15:48,-3,1\n", ["line 4", "-3 tokens"]),
        (AZURE + "nan,3,1\n", ["line 4", "not a time"]),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ["holds 0 requests"]),
    ],
)
def test_a_bad_csv_is_named_with_its_line(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(write(tmp_path, text))
    for word in ["t.csv", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", ["line 2"]),
        ("[1]", ["line 2"]),
        ('{"timestamp": 1, "input_length": 5}', ["line 2", "output_length", "missing"]),
        ('{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": "x"}', ["line 2"]),
    ],
)
def test_a_bad_jsonl_line_is_named(tmp_path: Path, line: str, words: list[str]) -> None:
    good = '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": []}'
    with pytest.raises(InputError) as caught:
        read_trace(write(tmp_path, f"{good}\n{line}\n", "m.jsonl"))
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"a,b\n\xff,1\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_trace(tmp_path / "b.csv")


@pytest.mark.parametrize("text", ["", "prompt", "prompt=a,output=b", "time_s=a,time_ms=b,prompt=c,output=d", "x=y"])
def test_columns_need_one_time_a_prompt_and_an_output(text: str) -> None:
    with pytest.raises(InputError, match="--columns"):
        parse_columns(text)
