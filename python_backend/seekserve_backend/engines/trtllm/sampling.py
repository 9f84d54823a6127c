"""One request -> the keywords of one SamplingParams and its KV retention, its faults named before the engine sees it.

TensorRT-LLM checks little itself: a zero max_tokens took servers down (#7692), a top_k of -1 crashed them (#4441), and
stop strings beside an explicit end id fail the request. So stops are ids here, ranges are checked, and nothing that
changes the outcome is left to defaults that differ between releases.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ...contract.bundle import Retention
from ..port import EngineInfo, EngineRequest, Guide, Sampling
from ..sampling_bounds import sampling_problems

__all__ = ["guide_keywords", "request_problems", "retention_of", "sampling_keywords", "stop_ids_of"]

_NO_END_ID = -1
_KEYWORD_OF_GUIDE = {"json_schema": "json", "regex": "regex", "ebnf_grammar": "grammar"}


def stop_ids_of(request: EngineRequest, info: EngineInfo) -> tuple[int, ...]:
    return request.stop_ids or info.eos_ids


def request_problems(request: EngineRequest, info: EngineInfo) -> list[str]:
    """Empty when the engine, idle, can run it."""
    problems = sampling_problems(request.sampling)
    tokens = len(request.prompt_ids) + request.max_tokens
    if not request.prompt_ids:
        problems.append("the prompt has no tokens")
    elif min(request.prompt_ids) < 0 or max(request.prompt_ids) >= info.vocab_size:
        problems.append(f"prompt ids must be 0 to {info.vocab_size - 1}")
    if any(not 0 <= stop < info.vocab_size for stop in request.stop_ids):
        problems.append(f"stop ids are {list(request.stop_ids)}, they must be 0 to {info.vocab_size - 1}")
    if request.max_tokens < 1:
        problems.append(f"max_tokens is {request.max_tokens}, it must be at least 1")
    if tokens > info.max_seq_len_tokens:
        problems.append(f"prompt and max_tokens are {tokens}, the limit is {info.max_seq_len_tokens} tokens")
    if not 1 <= request.beam_width <= info.max_beam_width:
        problems.append(f"beam_width is {request.beam_width}, it must be 1 to {info.max_beam_width}")
    elif request.beam_width > 1 and request.sampling.temperature > 0:
        problems.append(
            f"beam_width is {request.beam_width} and temperature {request.sampling.temperature}: one of both"
        )
    if request.wants_logprobs and (not info.has_logprobs or request.beam_width > 1):
        problems.append("log probabilities are wanted where this engine, or a search with beams, has none")
    if request.sampling.guide is not None and not info.has_guides:
        problems.append("a guide is given where this engine has no guided decoding")
    return problems


def sampling_keywords(
    request: EngineRequest, info: EngineInfo, *, model_has_defaults: bool, draw_seed: Callable[[], int] | None = None
) -> dict[str, Any]:
    """Keywords of SamplingParams. `model_has_defaults`: the LLM takes unset values from generation_config.json."""
    stops = stop_ids_of(request, info)
    keywords: dict[str, Any] = {
        "end_id": stops[0] if stops else _NO_END_ID,
        "max_tokens": request.max_tokens,
        "detokenize": False,
        "add_special_tokens": False,
    }
    if len(stops) > 1:
        keywords["stop_token_ids"] = list(stops[1:])
    keywords |= _decoding(request, draw_seed or _draw_seed)
    keywords |= _penalties(request.sampling, model_has_defaults=model_has_defaults)
    if request.sampling.min_tokens:
        keywords["min_tokens"] = min(request.sampling.min_tokens, request.max_tokens)
    if request.wants_logprobs:
        # 1, not 0: until mid-2026 zero meant none. The sampled token is always among those returned.
        keywords["logprobs"] = 1
    return keywords


def guide_keywords(guide: Guide) -> dict[str, Any]:
    """Keywords of one GuidedDecodingParams, of which exactly one may be set."""
    return {"json_object": True} if guide.kind == "json" else {_KEYWORD_OF_GUIDE[guide.kind]: guide.text}


def retention_of(retention: Retention, config_class: Any, prompt_tokens: int) -> Any:
    """A KvCacheRetentionConfig for one prompt. Durations are timedeltas there, whatever their names say."""
    duration = None if retention.prompt_duration_s is None else timedelta(seconds=retention.prompt_duration_s)
    end = None
    if retention.prompt_tokens is not None:
        end = min(retention.prompt_tokens, prompt_tokens)
    span = config_class.TokenRangeRetentionConfig(
        token_start=0, token_end=end, priority=retention.prompt_priority, duration_ms=duration
    )
    return config_class(token_range_retention_configs=[span], decode_retention_priority=retention.decode_priority)


def _decoding(request: EngineRequest, draw_seed: Callable[[], int]) -> dict[str, Any]:
    sampling = request.sampling
    if request.beam_width > 1:
        return {"use_beam_search": True, "best_of": request.beam_width, "n": 1}
    if sampling.temperature == 0:
        # One candidate is greedy in every release; a temperature of 0 was ignored by some.
        return {"top_k": 1}
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        # Without one the engine takes 0 for all, and the same prompt would be answered alike each time.
        "seed": draw_seed() if sampling.seed is None else sampling.seed,
    }


def _penalties(sampling: Sampling, *, model_has_defaults: bool) -> dict[str, Any]:
    """Left out when neutral: with speculation, some releases refuse any request that names one."""
    penalties = (
        ("repetition_penalty", sampling.repetition_penalty, 1.0),
        ("presence_penalty", sampling.presence_penalty, 0.0),
        ("frequency_penalty", sampling.frequency_penalty, 0.0),
    )
    keywords: dict[str, Any] = {name: value for name, value, neutral in penalties if value != neutral}
    if model_has_defaults:
        keywords.setdefault("repetition_penalty", 1.0)
    return keywords


def _draw_seed() -> int:
    return random.getrandbits(63)
