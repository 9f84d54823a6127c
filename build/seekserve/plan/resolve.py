"""Inputs + facts -> Plan. Every value is taken from the first source that has it, and remembers which that was.

Pure: the environment, the file and the size of the host come in as arguments. All problems are gathered and raised
together; a rule about a value that is wrong in itself is not reported on top of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seekserve_backend.contract.bundle import KvCache, Limits

from .checks import CHECKS
from .facts import PlanFacts
from .inputs import FIELDS, Inputs
from .plan import Plan, Source
from .values import Values, raise_problems

__all__ = ["DEFAULTS", "HOST_MEMORY_SHARE", "Defaults", "resolve"]

HOST_MEMORY_SHARE = 0.25
"""Part of the host's memory that the KV cache may take unless somebody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Of the reference engine, before they are bent to fit the model and the other values."""

    engine: str = "reference"
    max_seq_len_tokens: int = 2048
    max_batch_size: int = 16
    max_num_tokens: int = 512
    prefill_chunk_tokens: int = 256
    kv_dtype: str = "fp8_e4m3"
    block_tokens: int = 32


DEFAULTS = Defaults()
_SPECS = {spec.name: spec for spec in FIELDS}


def resolve(inputs: Inputs, facts: PlanFacts, *, host_memory_bytes: int | None, problems: Sequence[str] = ()) -> Plan:
    """`problems` are faults found while reading the inputs, reported with the rest.

    Raises ConfigError when a value is wrong in itself, DoesNotFit or ConflictError when values are wrong together.
    """
    values = Values(inputs=inputs, specs=_SPECS, problems=list(problems))
    plan = _plan(values, facts, host_memory_bytes)
    found = [finding for check in CHECKS if (finding := check(plan, facts, host_memory_bytes)) is not None]
    raise_problems(values, [finding for finding in found if not values.wrong & set(finding.about)])
    return plan


def _plan(values: Values, facts: PlanFacts, host_memory_bytes: int | None) -> Plan:
    limits = _limits(values, facts)
    return Plan(
        name=values.take("name", facts.default_name, Source.CHECKPOINT.value),
        family=facts.family,
        engine=values.take("engine", DEFAULTS.engine),
        gpu=None,
        tp=1,
        pp=1,
        ep=1,
        weights_dtype=facts.weights_dtype,
        weights_bytes=facts.weights_bytes,
        limits=limits,
        kv=_kv(values, facts, limits, host_memory_bytes),
        step_model=None,
        sources=values.sources,
    )


def _limits(values: Values, facts: PlanFacts) -> Limits:
    longest = DEFAULTS.max_seq_len_tokens
    source = Source.DEFAULT.value
    if facts.max_position_tokens is not None and facts.max_position_tokens < longest:
        longest, source = facts.max_position_tokens, f"{Source.CHECKPOINT.value} max_position_embeddings"
    max_batch_size = values.take("max_batch_size", DEFAULTS.max_batch_size)
    # Defaults give way to what was asked for: a step must have room for one token of every request.
    max_num_tokens = values.take("max_num_tokens", max(DEFAULTS.max_num_tokens, max_batch_size))
    return Limits(
        max_seq_len_tokens=values.take("max_seq_len_tokens", longest, source),
        max_batch_size=max_batch_size,
        max_num_tokens=max_num_tokens,
        prefill_chunk_tokens=values.take("prefill_chunk_tokens", min(DEFAULTS.prefill_chunk_tokens, max_num_tokens)),
    )


def _kv(values: Values, facts: PlanFacts, limits: Limits, host_memory_bytes: int | None) -> KvCache:
    dtype = values.take("kv_dtype", DEFAULTS.kv_dtype)
    block_tokens = values.take("block_tokens", DEFAULTS.block_tokens)
    bytes_per_token = facts.kv_bytes_per_token[dtype]
    blocks = limits.max_batch_size * -(-limits.max_seq_len_tokens // block_tokens)
    source = f"{Source.DEFAULT.value}: {limits.max_batch_size} full sequences"
    if host_memory_bytes is not None:
        affordable = int(host_memory_bytes * HOST_MEMORY_SHARE) // (bytes_per_token * block_tokens)
        if affordable < blocks:
            blocks, source = affordable, f"{Source.DEFAULT.value}: {HOST_MEMORY_SHARE:.0%} of the host's memory"
    tokens = values.take("kv_capacity_tokens", blocks * block_tokens, source)
    if tokens % block_tokens and values.is_given("kv_capacity_tokens"):
        values.sources["kv_cache.capacity_blocks"] += f" ({tokens} tokens, rounded down to whole blocks)"
    return KvCache(
        dtype=dtype,
        block_tokens=block_tokens,
        capacity_blocks=tokens // block_tokens,
        bytes_per_token=bytes_per_token,
    )
