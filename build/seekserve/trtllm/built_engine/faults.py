"""An engine held against the bundle that describes it: every difference, each with the two values that disagree.

An engine is fixed when it is built, so each difference is mended by building again, never by another run-time option.
"""

from __future__ import annotations

from collections.abc import Iterator

from seekserve.errors import ConfigError
from seekserve.trtllm.versions import version_key
from seekserve_backend.contract.bundle import Bundle

from .facts import EngineFacts

__all__ = ["engine_faults", "missing_engines"]

_QUANT_ALGOS = {
    "fp8_tensor": "FP8",
    "fp8_channel": "FP8_PER_CHANNEL_PER_TOKEN",
    "awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "gptq": "W4A16_GPTQ",
    "int8": "W8A16",
}
_FLOATS = ("bf16", "fp16", "fp32")


def engine_faults(facts: EngineFacts, bundle: Bundle, *, needs_paged_context: bool = False) -> list[str]:
    """One sentence for each. `needs_paged_context`: KV reuse or chunked prefill is switched on at run time."""
    faults = [
        *missing_engines(facts),
        *_shape_faults(facts, bundle),
        *_limit_faults(facts, bundle),
        *_cache_faults(facts, bundle),
        *_precision_faults(facts, bundle),
        *_version_faults(facts, bundle),
    ]
    if needs_paged_context and not facts.paged_context:
        faults.append(
            "use_paged_context_fmha is off in the engine, and KV reuse or chunked prefill is on: neither can work"
        )
    return faults


def missing_engines(facts: EngineFacts) -> list[str]:
    """Ranks without an engine file, or with an empty one."""
    faults = []
    for rank, size_bytes in enumerate(facts.engine_bytes):
        name = f"rank{rank}.engine"
        if size_bytes is None:
            faults.append(f"{name} is missing: world_size is {facts.world_size}, one engine for each rank")
        elif size_bytes == 0:
            faults.append(f"{name} is empty")
    return faults


def _shape_faults(facts: EngineFacts, bundle: Bundle) -> Iterator[str]:
    shape = bundle.parallel
    yield from _differs("tensor parallel size", facts.tp, shape.tp)
    yield from _differs("pipeline parallel size", facts.pp, shape.pp)
    if facts.world_size != facts.tp * facts.pp:
        yield f"world_size is {facts.world_size} in the engine, and its TP {facts.tp} x PP {facts.pp} are another"
    if facts.moe_ep is not None:
        yield from _differs("expert parallel size", max(facts.moe_ep, 1), shape.ep)


def _limit_faults(facts: EngineFacts, bundle: Bundle) -> Iterator[str]:
    limits, draft = bundle.limits, facts.max_draft_tokens
    beams = bundle.trtllm.max_beam_width if bundle.trtllm is not None else 1
    yield from _differs("max_batch_size", facts.max_batch_size, limits.max_batch_size)
    # The builder adds room for drafted tokens to both.
    yield from _differs("max_seq_len", facts.max_seq_len_tokens - draft, limits.max_seq_len_tokens)
    drafting = limits.max_batch_size * (draft + 1) if draft else 0
    if facts.max_num_tokens is not None:
        yield from _differs("max_num_tokens", facts.max_num_tokens, max(limits.max_num_tokens, drafting))
    yield from _differs("max_beam_width", facts.max_beam_width, beams)


def _cache_faults(facts: EngineFacts, bundle: Bundle) -> Iterator[str]:
    kind = (facts.kv_cache_type or "").upper()
    if kind and kind != "PAGED":
        yield f"kv_cache_type is {kind} in the engine, and only a paged cache can be served"
    if facts.tokens_per_block is not None:
        yield from _differs("tokens per KV block", facts.tokens_per_block, bundle.kv.block_tokens)
    if facts.kv_dtype is not None:
        is_alike = {facts.kv_dtype, bundle.kv.dtype} == {"bf16", "fp16"}
        yield from () if is_alike else _differs("KV cache dtype", facts.kv_dtype, bundle.kv.dtype)


def _precision_faults(facts: EngineFacts, bundle: Bundle) -> Iterator[str]:
    wanted = bundle.weights_dtype
    if facts.shape == "builder_config":
        return
    if wanted in _FLOATS and (facts.quant_algo is not None or facts.dtype != wanted):
        yield from _differs("weights", facts.quant_algo or facts.dtype, wanted)
    elif wanted in _QUANT_ALGOS and facts.quant_algo != _QUANT_ALGOS[wanted]:
        yield from _differs("weights", facts.quant_algo or facts.dtype, f"{wanted} ({_QUANT_ALGOS[wanted]})")


def _version_faults(facts: EngineFacts, bundle: Bundle) -> Iterator[str]:
    wanted = bundle.trtllm.version if bundle.trtllm is not None else bundle.engine_version
    if facts.version is None:
        yield f"the engine states no TensorRT-LLM version, so one before 0.8 built it; the bundle is for {wanted}"
    elif not _same_version(facts.version, wanted):
        yield (
            f"TensorRT-LLM {facts.version} built the engine, and the bundle is for {wanted}: an engine runs in the "
            "version that built it only"
        )


def _same_version(one: str, other: str) -> bool:
    try:
        return version_key(one) == version_key(other)
    except ConfigError:
        return one == other


def _differs(what: str, found: object, wanted: object) -> Iterator[str]:
    if found != wanted:
        yield f"{what} is {found} in the engine, {wanted} in the bundle"
