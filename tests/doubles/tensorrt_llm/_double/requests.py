"""From a call's arguments to the engine's request: input forms, lengths, and what the worker refuses later."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .engine import Limits
from .guard import violation
from .profile import PROFILE

__all__ = ["PreprocessedInputs", "Prompt", "max_tokens_of", "prompt_of", "refusal_of", "work_arguments"]

logger = logging.getLogger("tensorrt_llm")


@dataclass(slots=True, kw_only=True)
class PreprocessedInputs:
    """Since P13."""

    prompt_token_ids: list[int]
    query_token_ids: list[int] | None = None
    multimodal_params: Any = None
    encoder_input_token_ids: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str | None
    ids: list[int]


def prompt_of(inputs: Any, params: Any, tokenizer: Any) -> Prompt:
    if isinstance(inputs, PreprocessedInputs):
        return Prompt(None, _ids(inputs.prompt_token_ids, params))
    if isinstance(inputs, dict):
        if "prompt_token_ids" in inputs:
            return Prompt(None, _ids(inputs["prompt_token_ids"], params))
        assert "prompt" in inputs, "inputs must have prompt or prompt_token_ids"
        return prompt_of(inputs["prompt"], params, tokenizer)
    if isinstance(inputs, str):
        if tokenizer is None:
            raise ValueError("text needs a tokenizer, but the LLM has none")
        ids = tokenizer.encode(inputs, add_special_tokens=params.add_special_tokens)
        return Prompt(inputs, _ids(list(ids), params))
    if isinstance(inputs, list):
        return Prompt(None, _ids(inputs, params))
    raise TypeError(f"inputs must be str, a list of int or a dict, not {type(inputs).__name__}")


def check_vocabulary(ids: Sequence[int], vocab_size: int | None) -> None:
    """An id outside the embedding ends in an illegal memory access, which ends the engine."""
    if vocab_size is not None and not (min(ids) >= 0 and max(ids) < vocab_size):
        violation("token-range", f"token ids from {min(ids)} to {max(ids)}, the vocabulary has {vocab_size}")


def max_tokens_of(params: Any, prompt_tokens: int, limits: Limits) -> int:
    """As the worker decides it; 0 or less is refused there."""
    room = limits.max_seq_len - prompt_tokens
    wanted = params.max_tokens
    if wanted is None:
        return room
    if wanted > room:
        logger.warning("max_tokens %d is more than the room of %d and is reduced", wanted, room)
        return room
    return int(wanted)


def refusal_of(params: Any, prompt_tokens: int, max_tokens: int, limits: Limits, args: Any) -> str | None:
    """What the engine answers with an error after the call has returned."""
    if prompt_tokens > limits.max_seq_len:
        return f"prompt_token_ids length ({prompt_tokens}) is greater than max_seq_len ({limits.max_seq_len})"
    if max_tokens <= 0:
        return f"max_tokens {max_tokens} is not positive"
    if params.top_p == 0:
        return "top_p must be above 0"
    if params.use_beam_search and params.best_of > limits.max_beam_width:
        return f"beam width {params.best_of} is above max_beam_width {limits.max_beam_width}"
    if params.guided_decoding is not None and args.guided_decoding_backend is None:
        return "guided decoding needs guided_decoding_backend"
    try:
        list(params._stop_words())
    except RuntimeError as reason:
        return str(reason)
    return None


def work_arguments(params: Any, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
    return {
        "prompt_ids": tuple(prompt.ids),
        "max_tokens": max_tokens,
        "end_id": params.end_id,
        "ignores_end": params.ignore_eos,
        "min_tokens": params.min_tokens or 1,
        "stop_words": tuple(tuple(ids) for _, ids in params._stop_words()),
        "n_sequences": params.best_of,
        "is_beam": params.use_beam_search,
        "logprobs": _wanted(params.logprobs),
        "prompt_logprobs": _wanted(params.prompt_logprobs),
        "wants_metrics": params.return_perf_metrics,
        "arrived_at": time.monotonic(),
    }


def _wanted(count: int | None) -> int | None:
    """In the older era 0 is off, in the newer one it asks for the sampled token alone."""
    return None if count == 0 and PROFILE.sampling == "P12" else count


def _ids(ids: Any, params: Any) -> list[int]:
    if not isinstance(ids, list):
        raise TypeError(f"token ids must be a list, not {type(ids).__name__}")
    _ = ids[0]  # an empty prompt is an IndexError
    if not all(type(token) is int for token in ids):
        raise TypeError("token ids must be int")
    keep = params.truncate_prompt_tokens
    return list(ids if keep is None else ids[-keep:])
