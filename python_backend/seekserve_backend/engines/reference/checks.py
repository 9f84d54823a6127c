"""Which requests the engine refuses: every fault of one request, each with the bound it breaks. Pure."""

from __future__ import annotations

import math

from ...contract.bundle import KvCache
from ..port import EngineInfo, EngineRequest, Sampling

__all__ = ["request_problems", "sampling_problems"]

_MAX_SEED = 2**64 - 1


def request_problems(request: EngineRequest, info: EngineInfo, kv: KvCache) -> list[str]:
    """Empty when it can run on an idle engine."""
    problems = sampling_problems(request.sampling)
    tokens = len(request.prompt_ids) + request.max_tokens
    if not request.prompt_ids:
        problems.append("the prompt has no tokens")
    elif min(request.prompt_ids) < 0 or max(request.prompt_ids) >= info.vocab_size:
        problems.append(f"prompt ids must be 0 to {info.vocab_size - 1}")
    if request.max_tokens < 1:
        problems.append(f"max_tokens is {request.max_tokens}, it must be at least 1")
    if tokens > info.max_seq_len_tokens:
        problems.append(f"prompt and max_tokens are {tokens}, the limit is {info.max_seq_len_tokens} tokens")
    elif kv.blocks_for(tokens) > info.kv_total_blocks:
        problems.append(f"{tokens} tokens can never fit into {info.kv_total_blocks} KV blocks")
    return problems


def sampling_problems(sampling: Sampling) -> list[str]:
    """What is wrong with it, field by field; empty when it can be used."""
    rules = (
        ("temperature", sampling.temperature, "at least 0", sampling.temperature >= 0),
        ("top_k", sampling.top_k, "at least 0", sampling.top_k >= 0),
        ("top_p", sampling.top_p, "above 0 and at most 1", 0 < sampling.top_p <= 1),
        ("repetition_penalty", sampling.repetition_penalty, "above 0", sampling.repetition_penalty > 0),
        ("presence_penalty", sampling.presence_penalty, "a finite number", True),
        ("frequency_penalty", sampling.frequency_penalty, "a finite number", True),
        ("min_tokens", sampling.min_tokens, "at least 0", sampling.min_tokens >= 0),
        ("seed", sampling.seed or 0, f"0 to {_MAX_SEED}", 0 <= (sampling.seed or 0) <= _MAX_SEED),
    )
    return [
        f"{name} is {value}, it must be {bound}"
        for name, value, bound, holds in rules
        if not holds or not math.isfinite(value)
    ]
