"""Traces: when requests came, how long they were, what of their prompt had been seen before. Lengths only, no text.

Read are the Azure LLM inference CSVs, Mooncake's JSONL (hash ids of 512-token blocks), any CSV with named columns, and
ServeGen's aggregate JSON, of which a trace is composed anew for each seed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from seekserve.errors import InputError

__all__ = ["Recorded", "Trace", "TraceRow", "parse_columns", "read_trace"]

MOONCAKE_BLOCK_TOKENS = 512
_COLUMNS = ("time_s", "time_ms", "prompt", "output", "cached")
_KNOWN: tuple[Mapping[str, str], ...] = (
    {"time_s": "TIMESTAMP", "prompt": "ContextTokens", "output": "GeneratedTokens"},
    {
        "time_ms": "timestamp_ms",
        "prompt": "input_length",
        "output": "output_length",
        "cached": "reusable_prefix_tokens",
    },
)


@dataclass(frozen=True, slots=True)
class TraceRow:
    time_s: float
    """Since the first request."""
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Leading prompt tokens that an unlimited cache would hold already."""
    blocks: tuple[int, ...] = ()
    """Hashes of the prompt's leading blocks, where the trace has them."""


class Trace(Protocol):
    @property
    def name(self) -> str: ...

    def rows(self, seed: int) -> Sequence[TraceRow]: ...


@dataclass(frozen=True, slots=True)
class Recorded:
    name: str
    recorded: Sequence[TraceRow] = field(repr=False)

    def rows(self, seed: int) -> Sequence[TraceRow]:
        """The same for every seed."""
        return self.recorded


def parse_columns(text: str) -> dict[str, str]:
    """`time_s=TIMESTAMP,prompt=in,output=out[,cached=seen]`, or `time_ms=` for milliseconds."""
    hint = "for example --columns time_ms=timestamp,prompt=input_length,output=output_length"
    columns = {}
    for part in text.split(","):
        key, equals, name = part.partition("=")
        if not equals or key not in _COLUMNS:
            raise InputError(f"--columns: {part!r} is not KEY=COLUMN with a key of {', '.join(_COLUMNS)}", hint=hint)
        columns[key] = name
    missing = [key for key in ("prompt", "output") if key not in columns]
    if missing or len({"time_s", "time_ms"} & {*columns}) != 1:
        lacks = f"lacks {' and '.join(missing)}" if missing else "needs one of time_s and time_ms"
        raise InputError(f"--columns {text!r} {lacks}", hint=hint)
    return columns


def read_trace(
    path: Path, columns: Mapping[str, str] | None = None, *, skip: int = 0, rows: int | None = None
) -> Trace:
    """`rows` of it in the order of time, after the first `skip`.

    Raises InputError for a file that is not there, not of a known form, or shorter than that.
    """
    if path.suffix == ".json":
        from .servegen import read_servegen

        return read_servegen(path, skip=skip, rows=rows)
    try:
        found = _mooncake(path) if path.suffix == ".jsonl" else _csv(path, columns)
    except OSError as error:
        raise InputError(f"trace {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"trace {path} is not UTF-8 (byte {error.start})") from None
    found.sort(key=lambda row: row.time_s)
    kept = found[skip:][:rows]
    if not kept:
        raise InputError(f"trace {path} holds {len(found)} requests and {skip} of them are to be left out")
    start_s = kept[0].time_s
    moved = [
        TraceRow(row.time_s - start_s, row.prompt_tokens, row.output_tokens, row.cached_tokens, row.blocks)
        for row in kept
    ]
    return Recorded(path.stem, moved)


def _csv(path: Path, columns: Mapping[str, str] | None) -> list[TraceRow]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        names = list(reader.fieldnames or ())
        chosen = columns or next((known for known in _KNOWN if {*known.values()} <= {*names}), None)
        if chosen is None or not {*chosen.values()} <= {*names}:
            lacks = "" if chosen is None else f" and lacks {', '.join(sorted({*chosen.values()} - {*names}))}"
            raise InputError(
                f"trace {path} has the columns {', '.join(names) or '(none)'}{lacks}",
                hint="name them with --columns time_s=...,prompt=...,output=...",
            )
        rows = []
        for line in reader:
            try:
                rows.append(_row(line, chosen))
            except (ValueError, TypeError) as error:
                raise InputError(f"trace {path}, line {reader.line_num}: {_reason(error)}") from None
    return rows


def _row(line: Mapping[str, str], columns: Mapping[str, str]) -> TraceRow:
    time_s = float(line[columns["time_ms"]]) / 1000.0 if "time_ms" in columns else _time_s(line[columns["time_s"]])
    cached = int(line[columns["cached"]]) if "cached" in columns else 0
    return _checked(time_s, int(line[columns["prompt"]]), int(line[columns["output"]]), cached, ())


def _checked(time_s: float, prompt: int, output: int, cached: int, blocks: tuple[int, ...]) -> TraceRow:
    """Empty prompts and answers, which the traces hold, count as one token."""
    if not abs(time_s) < 1e12:
        raise ValueError(f"the time {time_s} is not a time")
    if min(prompt, output, cached) < 0:
        raise ValueError(f"{min(prompt, output, cached)} tokens; none may be negative")
    return TraceRow(time_s, max(prompt, 1), max(output, 1), min(cached, max(prompt, 1)), blocks)


def _reason(error: Exception) -> str:
    """A line that is too short gives None for a column."""
    return "a column is missing" if isinstance(error, TypeError) else str(error)


def _time_s(text: str) -> float:
    """Seconds, or a date with up to seven digits of a second, as the Azure traces have."""
    try:
        return float(text)
    except ValueError:
        whole, _, fraction = text.strip().partition(".")
        return datetime.fromisoformat(whole).timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def _mooncake(path: Path) -> list[TraceRow]:
    """Leading blocks whose hash came before count as cached, for whoever does not simulate a cache."""
    seen: set[int] = set()
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                data = json.loads(text)
                blocks = tuple(map(int, data.get("hash_ids", ())))
                prompt, output = int(data["input_length"]), int(data["output_length"])
                count = next((n for n, block in enumerate(blocks) if block not in seen), len(blocks))
                cached = min(count * MOONCAKE_BLOCK_TOKENS, prompt)
                rows.append(_checked(float(data["timestamp"]) / 1000.0, prompt, output, cached, blocks))
            except KeyError as error:
                raise InputError(f"trace {path}, line {number}: {error} is missing") from None
            except (ValueError, TypeError, AttributeError) as error:
                raise InputError(f"trace {path}, line {number}: {error}") from None
            seen.update(blocks)
    return rows
