"""Signatures of the methods by era, and the wrapper that holds callers to them.

`inspect.signature` shows the documented list. Only the first argument may be positional: the order of the others
changed between releases.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .guard import violation
from .profile import DOUBTS, PROFILE

__all__ = ["REQUIRED", "documented", "signature_of"]

REQUIRED: Any = inspect.Parameter.empty

_HEAD: dict[str, Any] = {"sampling_params": None, "lora_request": None, "prompt_adapter_request": None}
_MIDDLE: dict[str, Any] = {"kv_cache_retention_config": None, "disaggregated_params": None}
_TRACE: dict[str, Any] = {"trace_headers": None}
_P12 = {
    "generate": {
        "inputs": REQUIRED,
        "sampling_params": None,
        "use_tqdm": True,
        "lora_request": None,
        "prompt_adapter_request": None,
        **_MIDDLE,
        "scheduling_params": None,
        "cache_salt": None,
    },
    "generate_async": {
        "inputs": REQUIRED,
        **_HEAD,
        "streaming": False,
        **_MIDDLE,
        **(_TRACE if DOUBTS.trace_headers else {}),
        "_postproc_params": None,
        "scheduling_params": None,
        "cache_salt": None,
    },
}
_P13 = {
    "generate": {
        "inputs": REQUIRED,
        "sampling_params": None,
        "use_tqdm": True,
        "lora_request": None,
        "prompt_adapter_request": None,
        **_MIDDLE,
        "scheduling_params": None,
        "conversation_params": None,
        "cache_salt": None,
        "priority": 0.5,
    },
    "generate_async": {
        "inputs": REQUIRED,
        **_HEAD,
        "streaming": False,
        **_MIDDLE,
        **({} if DOUBTS.trace_headers is False else _TRACE),
        "_postproc_params": None,
        "scheduling_params": None,
        "conversation_params": None,
        "cache_salt": None,
        "priority": 0.5,
    },
    "preprocess": {"inputs": REQUIRED, "sampling_params": None, "disaggregated_params": None},
}
_BOTH = {
    "__init__": {
        "model": REQUIRED,
        "tokenizer": None,
        "tokenizer_mode": "auto",
        "skip_tokenizer_init": False,
        "trust_remote_code": False,
        "tensor_parallel_size": 1,
        "dtype": "auto",
        "revision": None,
        "tokenizer_revision": None,
    },
    "get_stats": {"timeout": 2},
    "get_stats_async": {"timeout": 2},
    "get_kv_cache_events": {"timeout": 2},
    "get_kv_cache_events_async": {"timeout": 2},
    "shutdown": {},
}
METHODS: Mapping[str, Mapping[str, Any]] = {**_BOTH, **(_P13 if PROFILE.api == "P13" else _P12)}


def signature_of(name: str) -> inspect.Signature:
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    listed = [inspect.Parameter("self", either)]
    listed += [inspect.Parameter(key, either, default=default) for key, default in METHODS[name].items()]
    if name == "__init__":
        listed.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(listed)


def documented(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives `function` all arguments by keyword, defaults filled in. TypeError for an unknown keyword."""
    name = function.__name__
    if name not in METHODS:
        return function
    signature = signature_of(name)

    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > (0 if name.startswith("get_") else 1):
            violation("positional-arguments", f"{name} got {len(args)} positional arguments")
        private = [key for key in kwargs if key.startswith("_") and key != "_mpi_session"]
        if private:
            violation("private-argument", f"{name} got {', '.join(private)}")
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        del values["self"]
        more = values.pop("kwargs", {})
        return function(self, **values, **more)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
