"""Rules that more than one value of a plan must keep. One function for each rule, the list of them a plain tuple.

A rule says what disagrees, both numbers with their sources, and the smallest change that would work.
"""

from __future__ import annotations

from collections.abc import Callable

from seekserve.output import bytes_text

from .facts import PlanFacts
from .finding import Finding
from .plan import Plan

__all__ = ["CHECKS", "Finding"]

_SEQ = "limits.max_seq_len_tokens"
_BATCH = "limits.max_batch_size"
_STEP = "limits.max_num_tokens"
_CHUNK = "limits.prefill_chunk_tokens"
_BLOCK = "kv_cache.block_tokens"
_CAPACITY = "kv_cache.capacity_blocks"


def sequence_within_model(plan: Plan, facts: PlanFacts, _memory: int | None) -> Finding | None:
    asked, most = plan.limits.max_seq_len_tokens, facts.max_position_tokens
    if most is None or asked <= most:
        return None
    return Finding(
        rule="sequence-within-model",
        about=(_SEQ,),
        message=f"{_said(plan, _SEQ, asked)} is above the model's max_position_embeddings {most}",
        hint=f"at most --max-seq-len {most}",
    )


def batch_within_step(plan: Plan, _facts: PlanFacts, _memory: int | None) -> Finding | None:
    batch, step = plan.limits.max_batch_size, plan.limits.max_num_tokens
    if batch <= step:
        return None
    return Finding(
        rule="batch-within-step",
        about=(_BATCH, _STEP),
        message=f"{_said(plan, _BATCH, batch)} decoding requests need a token each, above {_said(plan, _STEP, step)}",
        hint=f"--max-num-tokens {batch} or more, or --max-batch-size {step} or less",
    )


def chunk_within_step(plan: Plan, _facts: PlanFacts, _memory: int | None) -> Finding | None:
    chunk, step = plan.limits.prefill_chunk_tokens, plan.limits.max_num_tokens
    if chunk <= step:
        return None
    return Finding(
        rule="chunk-within-step",
        about=(_CHUNK, _STEP),
        message=f"{_said(plan, _CHUNK, chunk)} is above {_said(plan, _STEP, step)}",
        hint=f"--prefill-chunk {step} or less",
    )


def block_is_power_of_two(plan: Plan, _facts: PlanFacts, _memory: int | None) -> Finding | None:
    block = plan.kv.block_tokens
    if block & (block - 1) == 0:
        return None
    lower = 1 << (block.bit_length() - 1)
    return Finding(
        rule="block-is-power-of-two",
        about=(_BLOCK,),
        message=f"{_said(plan, _BLOCK, block)} is no power of two",
        hint=f"--block-tokens {lower} or {2 * lower}",
    )


def capacity_holds_a_sequence(plan: Plan, _facts: PlanFacts, _memory: int | None) -> Finding | None:
    kv, longest = plan.kv, plan.limits.max_seq_len_tokens
    needed = kv.blocks_for(longest)
    if kv.capacity_blocks >= needed:
        return None
    return Finding(
        rule="capacity-holds-a-sequence",
        about=(_CAPACITY, _BLOCK, _SEQ),
        message=f"one sequence of {longest} tokens takes {needed} blocks of {kv.block_tokens} tokens "
        f"({bytes_text(needed * kv.block_tokens * kv.bytes_per_token)}), above "
        f"{_said(plan, _CAPACITY, kv.capacity_blocks)}, which is {kv.capacity_tokens} tokens",
        hint=f"--kv-capacity-tokens {needed * kv.block_tokens} or more, or a shorter --max-seq-len",
        is_size=True,
    )


def fits_in_memory(plan: Plan, facts: PlanFacts, memory: int | None) -> Finding | None:
    cache = plan.kv.capacity_tokens * plan.kv.bytes_per_token
    if memory is None or cache + facts.run_bytes <= memory:
        return None
    room = max(0, memory - facts.run_bytes) // (plan.kv.bytes_per_token * plan.kv.block_tokens)
    return Finding(
        rule="fits-in-memory",
        about=(_CAPACITY,),
        message=f"weights of {bytes_text(facts.run_bytes)} in memory and a KV cache of {bytes_text(cache)} "
        f"({_said(plan, _CAPACITY, plan.kv.capacity_blocks)}) are above the host's memory of {bytes_text(memory)}",
        hint=f"at most --kv-capacity-tokens {room * plan.kv.block_tokens} on this host" if room else "a larger host",
        is_size=True,
    )


CHECKS: tuple[Callable[[Plan, PlanFacts, int | None], Finding | None], ...] = (
    sequence_within_model,
    batch_within_step,
    chunk_within_step,
    block_is_power_of_two,
    capacity_holds_a_sequence,
    fits_in_memory,
)


def _said(plan: Plan, name: str, value: int) -> str:
    """The value with its name and source, as in `limits.max_batch_size 64 (flag --max-batch-size)`."""
    return f"{name} {value} ({plan.sources.get(name, 'default')})"
