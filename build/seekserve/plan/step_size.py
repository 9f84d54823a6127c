"""How many tokens a step takes and how large a piece of a prompt is: the one follows from the other.

TensorRT-LLM has no chunk size of its own: with chunked prefill a piece of a prompt is as large as the room that
max_num_tokens leaves. Without chunks a prompt is one piece. Both at will cannot be had; a check says so.
"""

from __future__ import annotations

from .overheads import overheads
from .plan import Source
from .values import Values

__all__ = ["step_and_chunk", "step_for_chunk"]

_STEP, _CHUNK = "limits.max_num_tokens", "limits.prefill_chunk_tokens"


def step_for_chunk(chunk: int, *, max_batch_size: int | None, mtp: int, block_tokens: int) -> int:
    """Room for the chunk beside the tokens of all requests that generate, in whole blocks."""
    needed = chunk + _generated(max_batch_size, mtp)
    return -(-needed // max(block_tokens, 1)) * max(block_tokens, 1)


def step_and_chunk(
    values: Values, *, chunked_prefill: bool, max_batch_size: int | None, mtp: int, block_tokens: int
) -> tuple[int | None, int | None]:
    """(max_num_tokens, prefill chunk), None where the outcome decides."""
    step, chunk = values.take("max_num_tokens", None), values.take("prefill_chunk_tokens", None)
    if not chunked_prefill or (step is not None and chunk is not None):
        return step, chunk
    if step is not None:
        values.sources[_CHUNK] = f"{Source.DERIVED.value}: max_num_tokens, where TensorRT-LLM cuts a prompt"
        return step, step
    chunk = chunk or overheads().prefill_chunk_tokens
    tokens = _generated(max_batch_size, mtp)
    values.sources[_STEP] = f"{Source.DERIVED.value}: a chunk of {chunk} and {tokens} tokens of requests that generate"
    return step_for_chunk(chunk, max_batch_size=max_batch_size, mtp=mtp, block_tokens=block_tokens), chunk


def _generated(max_batch_size: int | None, mtp: int) -> int:
    return (max_batch_size or overheads().max_batch_size) * (1 + mtp)
