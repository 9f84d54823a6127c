"""The argument classes under their public names."""

from __future__ import annotations

from typing import Any

from tensorrt_llm._double import arg_rules, spec_rules
from tensorrt_llm._double.args_nested import CapacitySchedulerPolicy, ContextChunkingPolicy, WaitingQueuePolicy
from tensorrt_llm._double.args_top import BatchingType, LoadFormat, SamplerType, TorchLlmArgs
from tensorrt_llm._double.config import CLASSES, Config
from tensorrt_llm._double.kinds import has
from tensorrt_llm._double.profile import PROFILE

_ = arg_rules, spec_rules

__all__ = [
    "BatchingType",
    "CapacitySchedulerPolicy",
    "ContextChunkingPolicy",
    "LlmArgs",
    "LoadFormat",
    "SamplerType",
    "TorchLlmArgs",
    "WaitingQueuePolicy",
]
_ENGINE_ONLY = {"TrtLlmArgs", "BuildConfig", "QuantConfig", "CalibConfig", "BuildCacheConfig"}
LlmArgs = TorchLlmArgs


def __getattr__(name: str) -> Any:
    known = CLASSES.get(name)
    if known is None or not _exists(known):
        raise AttributeError(f"tensorrt_llm {PROFILE.version} has no {name}")
    return known


def _exists(cls: type[Config]) -> bool:
    if cls.__name__ in _ENGINE_ONLY and not PROFILE.has_engines:
        return False
    return any(has(field.at, at) for field in cls.FIELDS.values() for at in PROFILE.arg_states)
