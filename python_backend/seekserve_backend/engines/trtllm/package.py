"""What the adapter takes from the installed `tensorrt_llm`, found once and checked against the bundle's version.

The package is imported here and nowhere else, and late: importing it starts CUDA and MPI. Signatures changed between
releases, so `accepted` says which keywords a callable has; everything is called by keyword.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..port import EngineError

__all__ = ["Package", "accepted", "load_package", "same_version"]

_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.?(rc\d+))?")
_ARGS_READERS = ("tensorrt_llm.llmapi.llm_args", "tensorrt_llm.llmapi.llm_utils")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    version: str
    llm: Callable[..., Any]
    """The LLM class of the bundle's engine kind."""
    sampling_params: Callable[..., Any]
    guided_decoding: Callable[..., Any]
    request_error: type[Exception]
    """One request failed; the engine lives."""
    engine_dead: type[Exception] | None
    """The engine died. Releases before mid-2026 have no such class: there, what was in flight waits for ever."""
    retention_config: Any
    """KvCacheRetentionConfig; None where the release has none."""
    read_args: Callable[..., dict[str, Any]] | None
    """Turns the plain data of an argument file into what the LLM class takes, where the release needs that."""


def load_package(kind: str, wanted_version: str) -> Package:
    """Imports TensorRT-LLM for a bundle of `kind`. Raises EngineError with what to do."""
    try:
        root = importlib.import_module("tensorrt_llm")
    except ImportError as error:
        raise EngineError(
            f"TensorRT-LLM {wanted_version} cannot be imported ({error}); run this server in NVIDIA's "
            "tritonserver image with TensorRT-LLM, or install `seekserve[trtllm]` where the backend takes its packages"
        ) from error
    found = str(getattr(root, "__version__", "unknown"))
    if not same_version(found, wanted_version):
        raise EngineError(
            f"TensorRT-LLM {found} is installed, the bundle was built for {wanted_version}; install that version, or "
            f"build the bundle again with `seekserve build-engine --trtllm-version {found}`"
        )
    executor = importlib.import_module("tensorrt_llm.executor")
    llmapi = importlib.import_module("tensorrt_llm.llmapi")
    return Package(
        version=found,
        llm=_engine_directory_llm(found) if kind == "trtllm-engine" else root.LLM,
        sampling_params=root.SamplingParams,
        guided_decoding=llmapi.GuidedDecodingParams,
        request_error=executor.RequestError,
        engine_dead=getattr(executor, "EngineDeadError", None),
        retention_config=getattr(llmapi, "KvCacheRetentionConfig", None),
        read_args=_args_reader(),
    )


def same_version(found: str, wanted: str) -> bool:
    """Equal in major, minor, patch and release candidate; what a build adds behind that does not count."""
    here, there = _RELEASE.match(found), _RELEASE.match(wanted)
    return here is not None and there is not None and here.groups() == there.groups()


def accepted(function: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Those keywords that the callable names, or all of them when it takes any."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(keywords)
    return {name: value for name, value in keywords.items() if name in parameters}


def _engine_directory_llm(version: str) -> Callable[..., Any]:
    try:
        llm: Callable[..., Any] = importlib.import_module("tensorrt_llm._tensorrt_engine").LLM
    except ImportError as error:
        raise EngineError(
            f"TensorRT-LLM {version} cannot run engines of trtllm-build (1.3.0rc20 was the last release that could); "
            "build a bundle with `seekserve build-engine --engine trtllm-pytorch`"
        ) from error
    return llm


def _args_reader() -> Callable[..., dict[str, Any]] | None:
    """The function that NVIDIA's own server puts between an argument file and LLM; it moved, and may be gone."""
    for name in _ARGS_READERS:
        try:
            reader = getattr(importlib.import_module(name), "update_llm_args_with_extra_dict", None)
        except ImportError:
            continue
        if reader is not None:
            return lambda arguments, read=reader: dict(read({}, arguments))
    return None
