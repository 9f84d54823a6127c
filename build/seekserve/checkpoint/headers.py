"""Reads the header of one safetensors file: 8 bytes of little-endian length, then a JSON table of tensors.

Strict where the format is: sizes, offsets, names, nothing left over. Tensor data is never read. Whatever the bytes
hold, the outcome is tensors and findings, never an exception, and memory stays in proportion to a plausible table.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from .findings import Collector, Finding, Severity, printable

__all__ = ["DTYPE_BITS", "Header", "ShapeCache", "TensorEntry", "read_header"]

ShapeCache = dict[tuple[Any, ...], tuple[tuple[int, ...], int]]
"""(dtype, *extents) -> (shape, bytes). Floats and booleans never reach it, so equal keys mean equal shapes."""

MAX_HEADER_BYTES: Final = 100_000_000  # the format's own bound
MAX_RANK: Final = 32
LENGTH_BYTES: Final = 8
POINTER_START: Final = b"version https://git-lfs"
PLAUSIBLE_COMMAS_PER_ENTRY: Final = 12
SMALL_HEADER_BYTES: Final = 4_000_000

DTYPE_BITS: Final[dict[str, int]] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class TensorEntry(NamedTuple):
    """Where a tensor lies. A NamedTuple, since a full-size checkpoint holds about 92 thousand of them."""

    file: str
    dtype: str
    """The format's spelling: BF16, F8_E4M3, F32, ..."""
    shape: tuple[int, ...]
    begin_bytes: int
    """Position in the file, header included."""
    end_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    tensors: dict[str, TensorEntry]
    findings: tuple[Finding, ...]

    @property
    def is_readable(self) -> bool:
        return not self.findings


class HeaderFault(Exception):
    """Internal: this header cannot be used; carries code and message of the finding."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def read_header(path: Path, sizes: ShapeCache | None = None) -> Header:
    """`sizes` may be shared between calls: equal shapes then share one tuple."""
    findings = Collector()
    tensors: dict[str, TensorEntry] = {}
    try:
        table, data_start, file_bytes = _read_table(path)
        tensors = _entries(table, path.name, data_start, {} if sizes is None else sizes, findings)
        if not findings.findings:
            _check_extent(tensors, data_start, file_bytes)
    except HeaderFault as fault:
        findings.error(fault.code, path.name, fault.message)
    except OSError as error:
        findings.error("shard-unreadable", path.name, f"cannot be read: {error.strerror or error}")
    return Header(tensors=tensors, findings=tuple(findings.findings))


def _read_table(path: Path) -> tuple[dict[str, Any], int, int]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise HeaderFault("shard-unreadable", "is not a regular file")
    with path.open("rb", buffering=0) as file:
        file_bytes = file.seek(0, 2)
        file.seek(0)
        length = _header_length(file, file_bytes)
        raw = file.read(length)
    return decode_table(raw), LENGTH_BYTES + length, file_bytes


def _header_length(file: IO[bytes], file_bytes: int) -> int:
    if file_bytes == 0:
        raise HeaderFault("shard-empty", "is empty (0 bytes); download it again")
    start = file.read(LENGTH_BYTES)
    if POINTER_START.startswith(start):
        rest = start + file.read(len(POINTER_START))
        if rest.startswith(POINTER_START):
            raise HeaderFault(
                "shard-pointer", f"is a git-lfs pointer of {file_bytes} bytes, not the data; run `git lfs pull`"
            )
    if len(start) < LENGTH_BYTES:
        raise HeaderFault("shard-short", f"holds {file_bytes} bytes where the length field alone needs {LENGTH_BYTES}")
    length = int.from_bytes(start, "little")
    if length > MAX_HEADER_BYTES:
        raise HeaderFault(
            "header-length",
            f"names a header of {length:,} bytes where the format allows {MAX_HEADER_BYTES:,}; not a safetensors file",
        )
    if length > file_bytes - LENGTH_BYTES:
        raise HeaderFault(
            "shard-short",
            f"names a header of {length:,} bytes but holds {file_bytes - LENGTH_BYTES:,} after the length",
        )
    file.seek(LENGTH_BYTES)
    return length


def decode_table(raw: bytes) -> dict[str, Any]:
    """The JSON object of a header; raises HeaderFault on anything that is not one."""
    if not raw.startswith(b"{"):
        raise HeaderFault("header-json", f"the header begins with {raw[:1]!r} where the format asks for '{{'")
    if len(raw) > SMALL_HEADER_BYTES and raw.count(b",") > PLAUSIBLE_COMMAS_PER_ENTRY * raw.count(b"{") + 1000:
        # a few hundred bytes of Python objects per element: refuse before a hostile list is built
        raise HeaderFault("header-json", f"the header's {len(raw):,} bytes hold long lists, not a table of tensors")
    try:
        text = raw.decode("utf-8")
        table = json.loads(text, parse_constant=_refuse_number, parse_float=_refuse_number)
        if _may_hold_duplicates(raw, table):
            json.loads(text, object_pairs_hook=_unique)
        if (b"true" in raw or b"false" in raw) and any(map(_holds_boolean, table.values())):
            raise HeaderFault("header-json", "the header holds true or false where numbers are needed")
    except HeaderFault:
        raise
    except UnicodeDecodeError as error:
        raise HeaderFault("header-json", f"the header is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise HeaderFault("header-json", "the header is nested too deeply to be a table of tensors") from None
    except ValueError as error:
        raise HeaderFault("header-json", f"the header is not JSON: {error}") from None
    return table  # type: ignore[no-any-return]  # starts with '{', so it is an object


def _may_hold_duplicates(raw: bytes, table: dict[str, Any]) -> bool:
    """Exact and cheap in the usual case: without escapes, and with no space behind a quote, every key ends in `":`.

    If there are as many of those as there are distinct keys, no key occurs twice. Otherwise the slow way decides.
    """
    body = raw.rstrip(b" ")
    if b"\\" in body or any(space in body and b'"' + space in body for space in (b" ", b"\t", b"\n", b"\r")):
        return True
    try:
        distinct = len(table) + sum(map(len, table.values()))
    except TypeError:
        return True
    return body.count(b'":') != distinct


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        twice = [name for name, _ in pairs if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        raise HeaderFault("header-duplicate", f"the name {printable(twice[0])!r} occurs twice in one object")
    return out


def _holds_boolean(entry: object) -> bool:
    """`true` equals 1 in Python, so it must not reach arithmetic."""
    if isinstance(entry, dict):
        return any(_holds_boolean(value) for value in entry.values())
    return any(type(value) is bool for value in entry) if isinstance(entry, list) else type(entry) is bool


def _refuse_number(word: str) -> float:
    raise ValueError(f"{printable(word, 40)} is not a whole number")


def _entries(
    table: dict[str, Any], file: str, data_start: int, sizes: ShapeCache, findings: Collector
) -> dict[str, TensorEntry]:
    """This loop runs once per tensor: known (dtype, shape) pairs cost one look-up, only new ones are examined."""
    metadata = table.pop("__metadata__", None)
    if metadata is not None and not _is_text_map(metadata):
        findings.error("header-entry", file, "__metadata__ is not an object of strings")
    out: dict[str, TensorEntry] = {}
    faults: dict[str, list[tuple[str, str]]] = {}
    new, known_of = tuple.__new__, sizes.get
    for name, entry in table.items():
        try:
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            known = known_of((dtype, *shape)) or _examine(dtype, shape, sizes)
            if len(entry) != 3 or begin < 0:
                raise ValueError
            if end - begin == known[1]:
                out[name] = new(TensorEntry, (file, dtype, known[0], data_start + begin, data_start + end))
                continue
            fault = ("header-shape", _size_fault(dtype, shape, known[1], end - begin))
        except _UnknownDtype:
            fault = ("header-dtype", f"has the unknown dtype {printable(entry['dtype'], 40)!r}")
        except (TypeError, KeyError, ValueError):
            fault = ("header-entry", "is not a tensor of dtype, shape and two data_offsets")
        faults.setdefault(fault[0], []).append((name, fault[1]))
    for code, hits in faults.items():
        names = [(file, name) for name, _ in hits]
        findings.group(Severity.ERROR, code, names, f"{{n}} bad entries; the first {hits[0][1]}")
    return out


class _UnknownDtype(Exception):
    pass


def _examine(dtype: object, shape: object, sizes: ShapeCache) -> tuple[tuple[int, ...], int]:
    """The shape as a shared tuple, and its size in bytes. Raises ValueError for anything odd."""
    if type(dtype) is not str or type(shape) is not list or len(shape) > MAX_RANK:
        raise ValueError
    elements = 1
    for extent in shape:
        if type(extent) is not int or extent < 0:
            raise ValueError
        elements *= extent
    if dtype not in DTYPE_BITS:
        raise _UnknownDtype
    size_bytes, rest = divmod(elements * DTYPE_BITS[dtype], 8)
    if rest:
        raise ValueError
    return sizes.setdefault((dtype, *shape), (tuple(shape), size_bytes))


def _size_fault(dtype: str, shape: list[int], needed: int, given: int) -> str:
    text = "x".join(_short(extent) for extent in shape[:8])
    return f"({dtype} {text}) needs {_short(needed)} bytes where its data_offsets give {_short(given)}"


def _is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def _short(number: int) -> str:
    """Decimal for a sane number; the order of magnitude for one that would fill the screen."""
    return f"{number:,}" if number.bit_length() < 100 else f"about 2**{number.bit_length()}"


def _check_extent(tensors: dict[str, TensorEntry], data_start: int, file_bytes: int) -> None:
    """The tensors must tile the data section exactly: no overlap, no hole, nothing behind."""
    position = data_start
    extents = [(entry[3], entry[4]) for entry in tensors.values()]
    for begin, end in extents if _is_in_order(extents, data_start) else sorted(extents):
        if begin != position:
            kind = "overlap" if begin < position else "leave a hole"
            name = next(n for n, e in tensors.items() if e.begin_bytes == begin and e.end_bytes == end)
            raise HeaderFault(
                "header-offsets",
                f"tensors {kind}: {printable(name)} begins at {begin - data_start:,} of the data, "
                f"the one before it ends at {position - data_start:,}",
            )
        position = end
    if position > file_bytes:
        raise HeaderFault(
            "shard-short",
            f"is cut off: {file_bytes:,} bytes where the header needs {position:,}; download it again",
        )
    if position < file_bytes and tensors:
        raise HeaderFault(
            "shard-long", f"has {file_bytes - position:,} bytes that no tensor owns ({file_bytes:,} of {position:,})"
        )


def _is_in_order(extents: list[tuple[int, int]], position: int) -> bool:
    """Writers lay tensors down one behind the other; sorting is for the others."""
    for begin, end in extents:
        if begin != position:
            return False
        position = end
    return True
