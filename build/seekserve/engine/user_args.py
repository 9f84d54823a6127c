"""A user's own LLM arguments laid over the decided ones, and every value that the plan would then not know of.

What the plan resolved is read by scheduler, limits and launcher too, so it can be changed through the plan only: an
argument that says something else is a conflict with both values, not an override.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from seekserve.trtllm import overlay

from .llm_args import OWNED, Args, leaves, nested

__all__ = ["conflicts", "laid_over"]

_BUNDLE_OWNS: Final = ("model", "tokenizer", "revision", "tokenizer_revision", "checkpoint_loader", "backend")
_DRAFTS: Final = ("speculative_config.max_draft_len", "speculative_config.num_nextn_predict_layers")
_ABSENT: Final = object()


def conflicts(args: Args, given: Mapping[str, Any], places: Mapping[str, str], plan_draft_tokens: int) -> list[str]:
    """One sentence for each value that the plan resolved otherwise."""
    return list(_conflicts(args, given, places, plan_draft_tokens))


def laid_over(args: Args, given: Mapping[str, Any], places: Mapping[str, str]) -> Args:
    """The user's win. Their sources are where they were given."""
    merged, _ = overlay(nested(args.values), given)
    values = leaves(merged)
    own = leaves(given)
    sources = {path: places.get(path, "given") if path in own else args.sources.get(path, "derived") for path in values}
    return Args(values=values, sources=sources)


def _conflicts(args: Args, given: Mapping[str, Any], places: Mapping[str, str], drafts: int) -> Iterator[str]:
    for path, value in leaves(given).items():
        where = places.get(path, "given")
        if path in _BUNDLE_OWNS:
            if (path, value) != ("backend", "pytorch"):
                yield f"{path}: cannot be given ({where}): the bundle says what is loaded"
        elif path in ("cuda_graph_config", "kv_cache_config", "scheduler_config", "speculative_config"):
            if value is None and _has_section(args, path):
                yield f"{path}: is null ({where}), but the plan has it{_change(_SECTION_FLAGS.get(path, ''))}"
        elif path in OWNED:
            decided = args.values.get(path, _ABSENT)
            if value != decided and not (decided is _ABSENT and _says_nothing(value)):
                yield _disagreement(path, value, where, args)
        elif path in _DRAFTS and _is_mtp(given, drafts) and value != drafts:
            yield f"{path}: is {value} ({where}), but the plan drafts {drafts}{_change('--mtp')}"


_SECTION_FLAGS: Final = {"cuda_graph_config": "--no-cuda-graphs", "speculative_config": "--mtp 0"}


def _says_nothing(value: Any) -> bool:
    """What leaving the argument out says too."""
    return value in (None, "auto", False) or (type(value) is int and value == 1)


def _disagreement(path: str, value: Any, where: str, args: Args) -> str:
    if path not in args.values:
        return f"{path}: is {value!r} ({where}), but the plan was made without it{_change(OWNED[path])}"
    decided = f"the plan says {args.values[path]!r} ({args.sources[path]})"
    return f"{path}: is {value!r} ({where}), but {decided}{_change(OWNED[path])}"


def _change(flag: str) -> str:
    return f"; change it with {flag}" if flag else ""


def _has_section(args: Args, path: str) -> bool:
    return any(name.startswith(f"{path}.") for name in args.values)


def _is_mtp(given: Mapping[str, Any], drafts: int) -> bool:
    spec = given.get("speculative_config")
    kind = spec.get("decoding_type") if isinstance(spec, Mapping) else None
    return kind == "MTP" or (kind is None and drafts > 0)
