"""Which release the double stands for, chosen by DOUBLE_TRTLLM_PROFILE before the import.

What the public sources leave open for a release is decided by DOUBLE_TRTLLM_DOUBTS, a JSON object of `Doubts`' fields,
so that a client can be held to both answers. Nothing else in the double compares version numbers.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields

__all__ = ["DOUBTS", "PROFILE", "PROFILES", "Doubts", "Profile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    version: str
    api: str
    """Era of the method signatures: P12 or P13."""
    sampling: str
    """Era of SamplingParams: P12 or NEW."""
    arg_states: str
    """Letters of the snapshots of the LLM arguments that bracket this release."""
    has_engines: bool
    """The TensorRT backend with its engine directories."""
    has_dead_error: bool
    """Pending results learn that the engine died; before, they wait for ever."""
    long_prompt_error: str
    """What generate_async raises for a prompt above max_num_tokens: ValueError or RequestError."""
    stats: str
    """Era of the statistics rows: P12 or P13."""


PROFILES = {
    "1.2.1": Profile(
        version="1.2.1",
        api="P12",
        sampling="P12",
        arg_states="A",
        has_engines=True,
        has_dead_error=False,
        long_prompt_error="ValueError",
        stats="P12",
    ),
    "1.3.0rc20": Profile(
        version="1.3.0rc20",
        api="P13",
        sampling="P12",
        arg_states="AB",
        has_engines=True,
        has_dead_error=False,
        long_prompt_error="RequestError",
        stats="P13",
    ),
    "1.4.0rc4": Profile(
        version="1.4.0rc4",
        api="P13",
        sampling="NEW",
        arg_states="D",
        has_engines=False,
        has_dead_error=True,
        long_prompt_error="RequestError",
        stats="P13",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    trace_headers: bool | None = None
    """Whether generate_async has it; unknown for 1.2.1."""
    long_prompt_error: str | None = None
    args: str = "accept"
    """An LLM argument that only one of two bracketing snapshots knows: accept or refuse."""
    attention_dp_relax: bool | None = None
    """Default in SchedulingParams; unknown before NEW."""
    has_dead_error: bool | None = None


def _profile() -> Profile:
    name = os.environ.get("DOUBLE_TRTLLM_PROFILE") or "1.2.1"
    if name not in PROFILES:
        raise RuntimeError(f"DOUBLE_TRTLLM_PROFILE is {name!r}, not one of {', '.join(PROFILES)}")
    return PROFILES[name]


def _doubts() -> Doubts:
    raw = json.loads(os.environ.get("DOUBLE_TRTLLM_DOUBTS") or "{}")
    unknown = set(raw) - {field.name for field in fields(Doubts)}
    if unknown:
        raise RuntimeError(f"DOUBLE_TRTLLM_DOUBTS has unknown names: {', '.join(sorted(unknown))}")
    return Doubts(**raw)


PROFILE = _profile()
DOUBTS = _doubts()
