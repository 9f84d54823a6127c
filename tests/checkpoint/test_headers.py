"""The safetensors header reader: strict, bounded, and never an exception."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.checkpoint.toy import Tensor, header_bytes, write_raw, write_safetensors

from seekserve.checkpoint.headers import MAX_HEADER_BYTES, read_header


def table(**entries: Any) -> bytes:
    return json.dumps(entries, separators=(",", ":")).encode()


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def codes(path: Path) -> list[str]:
    return [finding.code for finding in read_header(path).findings]


def test_entries_carry_dtype_shape_and_absolute_offsets(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"x": Tensor("BF16", (2, 3)), "y": Tensor("F32", ())})
    header = read_header(path)
    start = len(header_bytes({"x": Tensor("BF16", (2, 3)), "y": Tensor("F32", ())}))
    assert header.findings == ()
    assert header.tensors["x"] == ("a.safetensors", "BF16", (2, 3), start, start + 12)
    assert header.tensors["y"] == ("a.safetensors", "F32", (), start + 12, start + 16)


def test_tensors_may_lie_in_another_order_than_the_table(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.safetensors", table(b=entry(offsets=[8, 16]), a=entry(offsets=[0, 8])), bytes(16))
    assert codes(path) == []


def test_an_empty_tensor_takes_no_room(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.safetensors", table(a=entry(shape=[0, 4], offsets=[0, 0]), b=entry()), bytes(8))
    assert codes(path) == []


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"", "shard-empty", "0 bytes"),
        (b"\x01\x02", "shard-short", "2 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "shard-pointer", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "header-length", "not a safetensors file"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}", "header-length", "100,000,001"),
        ((2**64 - 1).to_bytes(8, "little") + b"{}", "header-length", "18,446,744,073,709,551,615"),
        ((500).to_bytes(8, "little") + b"{}", "shard-short", "500"),
        ((0).to_bytes(8, "little"), "header-json", "begins with b''"),
    ],
)
def test_a_file_that_is_no_shard_is_one_finding(tmp_path: Path, content: bytes, code: str, says: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    [finding] = read_header(path).findings
    assert (finding.code, finding.file) == (code, "a.safetensors")
    assert says in finding.message


def test_a_shard_cut_off_in_the_data_names_both_sizes(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.safetensors", table(a=entry()), bytes(5))
    [finding] = read_header(path).findings
    size = path.stat().st_size
    assert finding.code == "shard-short"
    assert f"{size:,} bytes where the header needs {size + 3:,}" in finding.message


def test_bytes_that_no_tensor_owns_are_a_finding(tmp_path: Path) -> None:
    assert codes(write_raw(tmp_path / "a.safetensors", table(a=entry()), bytes(9))) == ["shard-long"]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (b"[1]", "header-json"),
        (b'{"a":', "header-json"),
        (b"{}garbage", "header-json"),
        (b'{"a":NaN}', "header-json"),
        (b'{"\xff":1}', "header-json"),
        (b'{"a":' + b"[" * 100_000, "header-json"),
        (b'{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}', "header-json"),
        (b'{"a":{"dtype":"F32","shape":[true,2],"data_offsets":[0,8]}}', "header-json"),
        (b'{"a":' + b"9" * 5000 + b"}", None),
        (table(a=entry(), b=entry()), "header-offsets"),
        (table(a=entry(offsets=[4, 12])), "header-offsets"),
        (table(a=entry(offsets=[8, 0])), "header-shape"),
        (table(a=entry(offsets=[-8, 0])), "header-entry"),
        (table(a=entry(offsets=[0, 10**30])), "header-shape"),
        (table(a=entry(shape=[3])), "header-shape"),
        (table(a=entry(shape=[2**62, 2**62])), "header-shape"),
        (table(a=entry(shape=[-1, -2])), "header-entry"),
        (table(a=entry(shape="2")), "header-entry"),
        (table(a=entry(shape={"2": 1})), "header-entry"),
        (table(a=entry(shape=[[2]])), "header-entry"),
        (table(a=entry(shape=[1] * 33, offsets=[0, 4])), "header-entry"),
        (table(a=entry(dtype="F128")), "header-dtype"),
        (table(a=entry(dtype=["F32"])), "header-entry"),
        (table(a=entry(dtype=None)), "header-entry"),
        (table(a=entry(dtype="F4", shape=[3], offsets=[0, 2])), "header-entry"),
        (table(a=entry(offsets=[0])), "header-entry"),
        (table(a=entry(offsets=["0", "8"])), "header-entry"),
        (table(a={**entry(), "more": 1}), "header-entry"),
        (table(a=5), "header-entry"),
        (table(a=None), "header-entry"),
        (table(__metadata__={"a": 1}, a=entry()), "header-entry"),
        (table(__metadata__=[1], a=entry()), "header-entry"),
    ],
)
def test_a_bad_table_is_a_finding_and_never_a_traceback(tmp_path: Path, header: bytes, code: str | None) -> None:
    found = codes(write_raw(tmp_path / "a.safetensors", header, bytes(8)))
    assert found == [code] if code else found


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":%s,"a":%s}',
        b'{"a":%s,"\\u0061":%s}',
        b'{"a" :%s,"a":%s}',
        b'{"a"\t:%s, "a"\n:%s}',
        b'{"a":5,"a":%s,"x":%s}',
    ],
)
def test_a_name_given_twice_is_a_finding_however_it_is_spelt(tmp_path: Path, header: bytes) -> None:
    first, second = table(x=entry())[5:-1], table(x=entry(offsets=[8, 16]))[5:-1]
    assert codes(write_raw(tmp_path / "a.safetensors", header % (first, second), bytes(16))) == ["header-duplicate"]


def test_a_key_given_twice_inside_an_entry_is_a_finding(tmp_path: Path) -> None:
    header = b'{"a":{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}}'
    assert codes(write_raw(tmp_path / "a.safetensors", header, bytes(8))) == ["header-duplicate"]


def test_colons_quotes_and_spaces_in_names_are_no_duplicates(tmp_path: Path) -> None:
    header = json.dumps({'a":': entry(), ":": entry(offsets=[8, 16]), "b c": entry(offsets=[16, 24])}).encode()
    assert codes(write_raw(tmp_path / "a.safetensors", header, bytes(24))) == []


def test_many_bad_entries_are_one_finding_with_a_count(tmp_path: Path) -> None:
    header = table(**{f"t{i}": entry(dtype="F128") for i in range(500)})
    [finding] = read_header(write_raw(tmp_path / "a.safetensors", header)).findings
    assert (finding.count, finding.examples) == (500, ("t0", "t1", "t2"))


def test_control_characters_in_a_name_are_escaped(tmp_path: Path) -> None:
    header = json.dumps({"\x1b[31mred\n": entry(dtype="F128")}).encode()
    [finding] = read_header(write_raw(tmp_path / "a.safetensors", header)).findings
    assert "\x1b" not in finding.message
    assert "\n" not in finding.message
    assert "\\x1b[31mred" in finding.message


@pytest.mark.parametrize("filler", [b"0,", b"[],", b'"",'])
def test_a_header_of_long_lists_is_refused_before_it_is_built(tmp_path: Path, filler: bytes) -> None:
    header = b'{"a":{"dtype":"F32","shape":[' + filler * 3_000_000 + b'0],"data_offsets":[0,8]}}'
    path = write_raw(tmp_path / "a.safetensors", header)
    tracemalloc.start()
    found = codes(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == ["header-json"]
    assert peak < 4 * len(header)


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    os.mkfifo(path)
    assert codes(path) == ["shard-unreadable"]


def test_a_missing_file_is_a_finding(tmp_path: Path) -> None:
    assert codes(tmp_path / "a.safetensors") == ["shard-unreadable"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
offsets = st.lists(st.integers(-16, 64) | st.integers(), min_size=0, max_size=3)
almost_entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "F8_E4M3", "F4", "BOOL", "nope"]) | json_values,
        "shape": st.lists(st.integers(-2, 5), max_size=3) | st.lists(st.integers(), max_size=3) | json_values,
        "data_offsets": offsets | json_values,
    }
)
tables = st.dictionaries(st.text(max_size=6) | st.just("__metadata__"), almost_entries | json_values, max_size=5)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=tables, data=st.integers(0, 80), length_error=st.sampled_from([0, 0, 0, -1, 1, 7, 2**40, -(2**40)]))
@example(content={"a": entry(shape=[2**62] * 3)}, data=8, length_error=0)
def test_no_header_makes_the_reader_fail(tmp_path: Path, content: Any, data: int, length_error: int) -> None:
    header = json.dumps(content).encode()
    length = max(len(header) + length_error, 0)
    result = read_header(write_raw(tmp_path / "f.safetensors", header, bytes(data), length=length))
    assert result.findings or sum(e.end_bytes - e.begin_bytes for e in result.tensors.values()) in (0, data)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(content)
    result = read_header(path)
    assert result.findings or not result.tensors


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 400), value=st.integers(0, 255))
def test_one_flipped_byte_is_noticed_or_harmless(tmp_path: Path, position: int, value: int) -> None:
    tensors = {"alpha": Tensor("F32", (2, 2)), "beta": Tensor("BF16", (3,)), "gamma": Tensor("I64", ())}
    whole = bytearray(header_bytes(tensors) + bytes(sum(t.size_bytes for t in tensors.values())))
    whole[position % len(whole)] = value
    path = tmp_path / "f.safetensors"
    path.write_bytes(bytes(whole))
    result = read_header(path)
    assert result.findings or len(result.tensors) == 3
