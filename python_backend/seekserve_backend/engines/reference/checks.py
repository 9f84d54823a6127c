"""Which requests the engine refuses: every fault of one request, each with the bound it breaks. Pure."""

from __future__ import annotations

from ...contract.bundle import KvCache
from ..port import EngineInfo, EngineRequest
from ..sampling_bounds import sampling_problems

__all__ = ["request_problems"]


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
