"""The LLM API's names of the profile."""

from __future__ import annotations

from typing import Any

from tensorrt_llm._double.profile import PROFILE
from tensorrt_llm._double.retention import KvCacheRetentionConfig
from tensorrt_llm.disaggregated_params import DisaggregatedParams
from tensorrt_llm.executor import CompletionOutput, LoRARequest, RequestError
from tensorrt_llm.sampling_params import GuidedDecodingParams, SamplingParams

from . import llm_args
from .llm import LLM, RequestOutput
from .llm_args import CapacitySchedulerPolicy, ContextChunkingPolicy, LlmArgs, TorchLlmArgs
from .mpi_session import MpiCommSession

__all__ = [
    "LLM",
    "CapacitySchedulerPolicy",
    "CompletionOutput",
    "ContextChunkingPolicy",
    "DisaggregatedParams",
    "GuidedDecodingParams",
    "KvCacheRetentionConfig",
    "LlmArgs",
    "LoRARequest",
    "MpiCommSession",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "TorchLlmArgs",
]


def __getattr__(name: str) -> Any:
    """Configuration classes that the profile has: KvCacheConfig, MTPDecodingConfig and so on."""
    try:
        return getattr(llm_args, name)
    except AttributeError:
        raise AttributeError(f"tensorrt_llm.llmapi {PROFILE.version} has no {name}") from None
