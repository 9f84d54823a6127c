"""The bounds of the sampling parameters, the same for every engine."""

from __future__ import annotations

import math

from .port import Sampling

__all__ = ["sampling_problems"]

_MAX_SEED = 2**64 - 1


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
