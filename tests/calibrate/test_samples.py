from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seekserve.calibrate.samples import StepSample, read_samples
from seekserve.errors import InputError

ROW: dict[str, Any] = {
    "iterLatencyMS": 40.0,
    "hostStepTimeMS": 21.5,
    "schedulerMode": "overlap",
    "kvCacheStats": {"usedNumBlocks": 10, "tokensPerBlock": 32},
    "inflightBatchingStats": {"numGenRequests": 6, "numCtxTokens": 100, "numCtxKvTokens": 20, "numGenKvTokens": 300},
    "specDecodingStats": None,
}


def write(path: Path, *rows: Any, as_list: bool = False) -> Path:
    path.write_text(json.dumps(list(rows)) if as_list else "\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_a_step_log_is_read(tmp_path: Path) -> None:
    row = {"decode_tokens": 3, "kv_tokens": 90, "chunks": [[10, 5]], "step_ms": 7.25}
    found = read_samples(write(tmp_path / "log.jsonl", row)).samples
    assert found == (StepSample(decode_tokens=3, kv_tokens=90, chunks=((10, 5),), step_ms=7.25),)
    assert (found[0].tokens, found[0].attention_tokens2) == (8, 125)


@pytest.mark.parametrize("as_list", [False, True])
def test_rows_of_tensorrt_llm_are_read_as_lines_and_as_a_list(tmp_path: Path, as_list: bool) -> None:
    found = read_samples(write(tmp_path / "stats.json", ROW, as_list=as_list)).samples
    assert found == (StepSample(decode_tokens=6, kv_tokens=300, chunks=((20, 100),), step_ms=21.5),)


def test_an_older_row_counts_where_loops_do_not_overlap(tmp_path: Path) -> None:
    batch = {"numGenRequests": 6, "numCtxTokens": 0}
    old = {"iterLatencyMS": 40.0, "schedulerMode": "non_overlap", "kvCacheStats": ROW["kvCacheStats"]}
    (found,) = read_samples(write(tmp_path / "s", {**old, "inflightBatchingStats": batch})).samples
    assert found == StepSample(decode_tokens=6, kv_tokens=320, chunks=(), step_ms=40.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hostStepTimeMS": None}, "spans two loops"),
        ({"inflightBatchingStats": None}, "no numGenRequests"),
        ({"inflightBatchingStats": {"numGenRequests": 0, "numCtxTokens": 0}}, "nothing was computed"),
        ({"specDecodingStats": {"numDraftTokens": 3}}, "speculative"),
        ({"kvCacheStats": 0, "inflightBatchingStats": {"numGenRequests": 1, "numCtxTokens": 0}}, "no numGenKvTokens"),
    ],
)
def test_rows_that_say_too_little_are_counted_and_left_out(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    both = read_samples(write(tmp_path / "s", ROW, {**ROW, **change}))
    assert len(both.samples) == 1
    assert [count for reason, count in both.left_out.items() if why in reason] == [1]
    with pytest.raises(InputError, match=f"no usable step.*{why}"):
        read_samples(write(tmp_path / "t", {**ROW, **change}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("{oops", "line 1: not JSON"),
        ('{"decode_tokens": 1}', "kv_tokens: missing"),
        ('{"decode_tokens": 1, "kv_tokens": 1, "chunks": [[1]], "step_ms": 1}', "chunks: expected a list"),
        ('{"decode_tokens": 1, "kv_tokens": 1, "chunks": [], "step_ms": -1}', "step_ms"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=says):
        read_samples(path)
    with pytest.raises(InputError, match="nowhere"):
        read_samples(tmp_path / "nowhere")
