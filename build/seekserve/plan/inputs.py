"""What the user said, in one place: each input's flag, environment variable, place in the file, and type.

`Inputs` holds only what was given, each value with its source; everything else is UNSET. One table drives the flags,
the environment and the file, so the three cannot disagree about a name. Decides nothing: `resolve.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from seekserve_backend.contract.bundle import ENGINE_KINDS, KV_DTYPES

from .plan import UNSET, Source, Unset

__all__ = ["FIELDS", "FieldSpec", "Given", "Inputs", "environment_inputs", "file_inputs", "flag_inputs", "merge"]

T = TypeVar("T")


@dataclass(frozen=True)
class Given(Generic[T]):
    """A value that somebody gave, and who."""

    value: T
    source: Source
    place: str
    """The flag, variable or file."""

    @property
    def source_text(self) -> str:
        return f"{self.source.value} {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    name: Given[str] | Unset = UNSET
    """Name of the deployment."""
    engine: Given[str] | Unset = UNSET
    """One of the contract's ENGINE_KINDS."""
    max_seq_len_tokens: Given[int] | Unset = UNSET
    """Prompt plus output of one request."""
    max_batch_size: Given[int] | Unset = UNSET
    """Requests in flight at once."""
    max_num_tokens: Given[int] | Unset = UNSET
    """Tokens that one engine step may process."""
    prefill_chunk_tokens: Given[int] | Unset = UNSET
    """Largest piece of one prompt in a step."""
    kv_dtype: Given[str] | Unset = UNSET
    """One of the contract's KV_DTYPES."""
    block_tokens: Given[int] | Unset = UNSET
    """Tokens in one KV block."""
    kv_capacity_tokens: Given[int] | Unset = UNSET
    """Tokens that the whole KV cache holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    name: str
    """Field of Inputs."""
    flag: str
    file_key: str
    """Dotted place in seekserve.yaml."""
    plan_key: str
    """Dotted name in Plan.sources and bundle.json."""
    kind: type
    help: str
    choices: tuple[str, ...] | None = None

    @property
    def variable(self) -> str:
        return "SEEKSERVE_" + self.flag.removeprefix("--").replace("-", "_").upper()


FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        name="name",
        flag="--name",
        file_key="name",
        plan_key="name",
        kind=str,
        help="Name of the deployment. [default: from the checkpoint]",
    ),
    FieldSpec(
        name="engine",
        flag="--engine",
        file_key="target.engine",
        plan_key="engine",
        kind=str,
        choices=ENGINE_KINDS,
        help="What runs the model. [default: reference]",
    ),
    FieldSpec(
        name="max_seq_len_tokens",
        flag="--max-seq-len",
        file_key="limits.max_seq_len_tokens",
        plan_key="limits.max_seq_len_tokens",
        kind=int,
        help="Prompt plus output of one request, in tokens. [default: 2048, or less if the model has less]",
    ),
    FieldSpec(
        name="max_batch_size",
        flag="--max-batch-size",
        file_key="limits.max_batch_size",
        plan_key="limits.max_batch_size",
        kind=int,
        help="Requests in flight at once. [default: 16]",
    ),
    FieldSpec(
        name="max_num_tokens",
        flag="--max-num-tokens",
        file_key="limits.max_num_tokens",
        plan_key="limits.max_num_tokens",
        kind=int,
        help="Tokens that one engine step may process. [default: 512]",
    ),
    FieldSpec(
        name="prefill_chunk_tokens",
        flag="--prefill-chunk",
        file_key="limits.prefill_chunk_tokens",
        plan_key="limits.prefill_chunk_tokens",
        kind=int,
        help="Largest piece of one prompt in a step, in tokens. [default: 256]",
    ),
    FieldSpec(
        name="kv_dtype",
        flag="--kv-dtype",
        file_key="kv_cache.dtype",
        plan_key="kv_cache.dtype",
        kind=str,
        choices=KV_DTYPES,
        help="Number format of the KV cache. [default: fp8_e4m3]",
    ),
    FieldSpec(
        name="block_tokens",
        flag="--block-tokens",
        file_key="kv_cache.block_tokens",
        plan_key="kv_cache.block_tokens",
        kind=int,
        help="Tokens in one KV block, a power of two. [default: 32]",
    ),
    FieldSpec(
        name="kv_capacity_tokens",
        flag="--kv-capacity-tokens",
        file_key="kv_cache.capacity_tokens",
        plan_key="kv_cache.capacity_blocks",
        kind=int,
        help="Tokens that the whole KV cache holds. [default: full sequences for every request, as memory allows]",
    ),
)


def flag_inputs(values: Mapping[str, object]) -> Inputs:
    """From parsed flags by field name; None means that the flag was not given."""
    places = {spec.name: spec.flag for spec in FIELDS}
    return _inputs({name: value for name, value in values.items() if value is not None}, Source.FLAG, places)


def file_inputs(values: Mapping[str, object], path: Path) -> Inputs:
    return _inputs(values, Source.FILE, {spec.name: str(path) for spec in FIELDS})


def environment_inputs(environ: Mapping[str, str]) -> tuple[Inputs, list[str]]:
    """The inputs and one sentence for each variable that cannot be read; an empty variable counts as not given."""
    values: dict[str, object] = {}
    problems = []
    for spec in FIELDS:
        text = environ.get(spec.variable, "").strip()
        if not text:
            continue
        if spec.kind is not int:
            values[spec.name] = text
            continue
        try:
            values[spec.name] = int(text)
        except ValueError:
            problems.append(f"environment {spec.variable}: expected an integer, got {text!r}")
    return _inputs(values, Source.ENVIRONMENT, {spec.name: spec.variable for spec in FIELDS}), problems


def merge(*layers: Inputs) -> Inputs:
    """An earlier layer wins over a later one, field by field."""
    merged = {}
    for field in dataclass_fields(Inputs):
        given = [value for layer in layers if isinstance(value := getattr(layer, field.name), Given)]
        if given:
            merged[field.name] = given[0]
    return Inputs(**merged)


def _inputs(values: Mapping[str, object], source: Source, places: Mapping[str, str]) -> Inputs:
    given: dict[str, Any] = {name: Given(value, source, places[name]) for name, value in values.items()}
    return Inputs(**given)
