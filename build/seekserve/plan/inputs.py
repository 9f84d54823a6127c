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

__all__ = [
    "FIELDS",
    "FieldSpec",
    "Given",
    "Inputs",
    "environment_inputs",
    "file_inputs",
    "flag_inputs",
    "merge",
    "preset_inputs",
]

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
    # Of a deployment on GPUs; `target.py` has their table.
    gpu: Given[str] | Unset = UNSET
    gpus: Given[int] | Unset = UNSET
    """All of them, on all nodes."""
    nodes: Given[int] | Unset = UNSET
    tp: Given[int] | Unset = UNSET
    pp: Given[int] | Unset = UNSET
    ep: Given[int] | Unset = UNSET
    moe_tp: Given[int] | Unset = UNSET
    attention_dp: Given[bool] | Unset = UNSET
    mtp: Given[int] | Unset = UNSET
    """Draft tokens of multi-token prediction; 0 = off."""
    isl: Given[int] | Unset = UNSET
    osl: Given[int] | Unset = UNSET
    kv_fraction: Given[float] | Unset = UNSET
    """Of the memory that is free after loading."""
    trtllm_version: Given[str] | Unset = UNSET
    chunked_prefill: Given[bool] | Unset = UNSET
    cuda_graphs: Given[bool] | Unset = UNSET
    indexer_dtype: Given[str] | Unset = UNSET
    capacity_policy: Given[str] | Unset = UNSET
    rank0_overhead_mib: Given[int] | Unset = UNSET
    """On the first GPU of a host for each other rank there."""
    host_cache_gib: Given[float] | Unset = UNSET
    kv_uvm: Given[bool] | Unset = UNSET


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
    low: float = 1
    """Smallest number that makes sense."""
    high: float | None = None
    gpu_help: str = ""
    """Help where the engine runs on GPUs and the default is another one."""

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
        gpu_help="What runs the model. [default: the kind that runs this family]",
    ),
    FieldSpec(
        name="max_seq_len_tokens",
        flag="--max-seq-len",
        file_key="limits.max_seq_len_tokens",
        plan_key="limits.max_seq_len_tokens",
        kind=int,
        low=2,
        help="Prompt plus output of one request, in tokens. [default: 2048, or less if the model has less]",
        gpu_help="Prompt plus output of one request, in tokens. [default: ISL + OSL, or 8192; never the full context]",
    ),
    FieldSpec(
        name="max_batch_size",
        flag="--max-batch-size",
        file_key="limits.max_batch_size",
        plan_key="limits.max_batch_size",
        kind=int,
        help="Requests in flight at once. [default: 16]",
        gpu_help="Requests in flight at once, on each rank with attention DP. [default: what the cache carries]",
    ),
    FieldSpec(
        name="max_num_tokens",
        flag="--max-num-tokens",
        file_key="limits.max_num_tokens",
        plan_key="limits.max_num_tokens",
        kind=int,
        help="Tokens that one engine step may process. [default: 512]",
        gpu_help="Tokens that one engine step may process. [default: a chunk and a token of each request]",
    ),
    FieldSpec(
        name="prefill_chunk_tokens",
        flag="--prefill-chunk",
        file_key="limits.prefill_chunk_tokens",
        plan_key="limits.prefill_chunk_tokens",
        kind=int,
        help="Largest piece of one prompt in a step, in tokens. [default: 256]",
        gpu_help="Largest piece of one prompt in a step, in tokens. [default: 1024, or --max-num-tokens]",
    ),
    FieldSpec(
        name="kv_dtype",
        flag="--kv-dtype",
        file_key="kv_cache.dtype",
        plan_key="kv_cache.dtype",
        kind=str,
        choices=KV_DTYPES,
        help="Number format of the KV cache. [default: fp8_e4m3]",
        gpu_help="Number format of the KV cache. [default: fp8_e4m3 where GPU and engine have it]",
    ),
    FieldSpec(
        name="block_tokens",
        flag="--block-tokens",
        file_key="kv_cache.block_tokens",
        plan_key="kv_cache.block_tokens",
        kind=int,
        help="Tokens in one KV block, a power of two. [default: 32]",
        gpu_help="Tokens in one KV block. [default: 32; 64 for Hopper latent attention, 128 for V4]",
    ),
    FieldSpec(
        name="kv_capacity_tokens",
        flag="--kv-capacity-tokens",
        file_key="kv_cache.capacity_tokens",
        plan_key="kv_cache.capacity_blocks",
        kind=int,
        help="Tokens that the whole KV cache holds. [default: full sequences for every request, as memory allows]",
        gpu_help="Tokens that the whole KV cache holds at most. [default: what --kv-fraction gives]",
    ),
)


def flag_inputs(values: Mapping[str, object], fields: tuple[FieldSpec, ...] = FIELDS) -> Inputs:
    """From parsed flags by field name; None means that the flag was not given."""
    places = {spec.name: spec.flag for spec in fields}
    return _inputs({name: value for name, value in values.items() if value is not None}, Source.FLAG, places)


def file_inputs(values: Mapping[str, object], path: Path, fields: tuple[FieldSpec, ...] = FIELDS) -> Inputs:
    return _inputs(values, Source.FILE, {spec.name: str(path) for spec in fields})


def preset_inputs(values: Mapping[str, object], preset: str) -> Inputs:
    return _inputs(values, Source.PRESET, dict.fromkeys(values, preset))


def environment_inputs(environ: Mapping[str, str], fields: tuple[FieldSpec, ...] = FIELDS) -> tuple[Inputs, list[str]]:
    """The inputs and one sentence for each variable that cannot be read; an empty variable counts as not given."""
    values: dict[str, object] = {}
    problems = []
    for spec in fields:
        text = environ.get(spec.variable, "").strip()
        if not text:
            continue
        try:
            values[spec.name] = _parsed(spec.kind, text)
        except ValueError:
            problems.append(f"environment {spec.variable}: expected {_KIND_NAMES[spec.kind]}, got {text!r}")
    return _inputs(values, Source.ENVIRONMENT, {spec.name: spec.variable for spec in fields}), problems


_KIND_NAMES: Mapping[type, str] = {int: "an integer", float: "a number", bool: "true or false"}
_SWITCHES: Mapping[str, bool] = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _parsed(kind: type, text: str) -> object:
    """Raises ValueError for text of another kind."""
    if kind is bool:
        if text.lower() not in _SWITCHES:
            raise ValueError(text)
        return _SWITCHES[text.lower()]
    return kind(text)


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
