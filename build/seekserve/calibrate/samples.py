"""Measured engine steps: what was in each, and how long it took; read from the files that engines leave.

Two forms, told apart by their keys: the step log of the seekserve backend, and the iteration statistics of
TensorRT-LLM (JSON Lines or one JSON list, as `get_stats`, `trtllm-bench --iteration_log` and `/metrics` give them).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.errors import InputError
from seekserve.output import os_error_text
from seekserve_backend.contract.fields import ContractError, Fields

from .iteration_stats import Unusable, is_count, read_iteration

__all__ = ["SampleFile", "StepSample", "read_samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    decode_tokens: int
    """Requests that got one more token."""
    kv_tokens: int
    """In the cache before the step."""
    chunks: tuple[tuple[int, int], ...]
    """(tokens before, tokens read) of each prompt that was read."""
    step_ms: float

    @property
    def tokens(self) -> int:
        return self.decode_tokens + sum(tokens for _, tokens in self.chunks)

    @property
    def attention_tokens2(self) -> int:
        return sum(2 * before * tokens + tokens * tokens for before, tokens in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFile:
    samples: tuple[StepSample, ...]
    left_out: Mapping[str, int]
    """Why rows were not used, and how many for each reason."""


def read_samples(path: Path) -> SampleFile:
    """Raises InputError for a file that cannot be read or holds no usable step."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = os_error_text(error) if isinstance(error, OSError) else f"not UTF-8: {error}"
        raise InputError(f"samples {path}: {what}") from error
    samples: list[StepSample] = []
    left_out: dict[str, int] = {}
    for where, row in _rows(text, str(path)):
        found = _read_row(row, where)
        if isinstance(found, Unusable):
            left_out[found.why] = left_out.get(found.why, 0) + 1
        else:
            samples.append(found)
    if not samples:
        why = "; ".join(f"{count} rows: {reason}" for reason, count in left_out.items()) or "the file is empty"
        raise InputError(f"samples {path}: no usable step in it ({why})")
    return SampleFile(samples=tuple(samples), left_out=left_out)


def _rows(text: str, where: str) -> Iterator[tuple[str, Any]]:
    if text.lstrip().startswith("["):
        rows = _parsed(text, where)
        for number, row in enumerate(rows, 1):
            yield f"{where}, row {number}", row
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield f"{where}, line {number}", _parsed(line, f"{where}, line {number}")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: not JSON ({error.msg} at column {error.colno})",
            hint="give the step log of the seekserve backend or iteration statistics of TensorRT-LLM",
        ) from None


def _read_row(row: Any, where: str) -> StepSample | Unusable:
    if isinstance(row, Mapping) and "iterLatencyMS" in row:
        found = read_iteration(row)
        if isinstance(found, Unusable):
            return found
        return StepSample(
            decode_tokens=found.decode_tokens,
            kv_tokens=found.kv_tokens,
            chunks=found.chunks,
            step_ms=found.step_ms,
        )
    return _read_logged(row, where)


def _read_logged(row: Any, where: str) -> StepSample:
    fields = Fields(row, where)
    sample = StepSample(
        decode_tokens=fields.integer("decode_tokens", low=0),
        kv_tokens=fields.integer("kv_tokens", low=0),
        chunks=_chunks(fields),
        step_ms=fields.number("step_ms", low=0.0),
    )
    try:
        fields.done()
    except ContractError as error:
        raise InputError(str(error)) from None
    return sample


def _chunks(fields: Fields) -> tuple[tuple[int, int], ...]:
    value = fields.raw("chunks")
    good = isinstance(value, list) and all(
        isinstance(c, list) and len(c) == 2 and all(is_count(n) for n in c) for c in value
    )
    if not good:
        fields.problem(f"chunks: expected a list of [tokens before, tokens read] pairs, got {value!r}")
        return ()
    return tuple((before, tokens) for before, tokens in value)


def _is_chunk(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))
