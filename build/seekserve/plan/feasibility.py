"""Can it work at all: engine kind and version, precision against the GPU's architecture, bytes against its memory.

What cannot is said first, before anything about speed, with the numbers and the smallest thing that would do.
"""

from __future__ import annotations

from typing import Final

from seekserve.output import bytes_text

from .case import Case, Target, Wish
from .finding import Finding
from .gpus import GIB, catalogue
from .model import Model
from .search import smallest_count
from .support import engine_refusal, is_known_precision, precision_refusal, weights_supported

__all__ = ["kv_findings", "size_findings", "support_findings", "weights_finding"]

_COMMON: Final = ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
"""What people can get, tried in this order when their own GPUs cannot do it."""


def support_findings(model: Model, target: Target) -> list[Finding]:
    """Engine kind, version, architecture, precision; each refusal names what works."""
    found = []
    refusal = engine_refusal(model.family, model.name, target.engine, target.version)
    if refusal is not None:
        message, works = refusal
        found.append(Finding(rule="engine-support", about=("target.engine",), message=message, hint=works))
    support, gpu = target.support, target.gpu
    refused = precision_refusal(model.precision, gpu)
    if refused is not None:
        why, names = refused
        found.append(_hardware("precision-hardware", why, [n for n in _COMMON if n in names] or list(names)))
    elif support is not None and gpu.sm < support.min_sm:
        fitting = [name for name in _COMMON if catalogue()[name].sm >= support.min_sm]
        message = (
            f"{model.name} on {target.engine} needs SM{support.min_sm} or newer; {gpu.name} is {gpu.architecture} "
            f"(SM{gpu.sm})"
        )
        found.append(_hardware("gpu-architecture", message, fitting))
    if support is not None and not weights_supported(support, model.precision):
        what = "" if is_known_precision(model.precision) else ", a format this toolkit does not know"
        message = (
            f"{target.engine} runs {model.name} with weights in {', '.join(support.weights)}; "
            f"the checkpoint holds {model.precision}{what}"
        )
        hint = "a checkpoint in one of those, e.g. by `seekserve convert`"
        found.append(Finding(rule="precision-engine", about=("weights",), message=message, hint=hint))
    return found


def kv_findings(model: Model, target: Target, kv_dtype: str) -> list[Finding]:
    support, gpu = target.support, target.gpu
    if support is None or kv_dtype in support.kv:
        return []
    allowed = " or ".join(f"--kv-dtype {name}" for name in support.kv)
    message = f"KV cache in {kv_dtype} is not there for {model.name} on {target.engine} ({gpu.name})"
    return [Finding(rule="kv-dtype", about=("kv_cache.dtype",), message=message, hint=allowed)]


def weights_finding(model: Model, target: Target, wish: Wish) -> Finding | None:
    """Weights alone are above all memory together: nothing about shapes needs to be said."""
    have, need = target.gpus * target.gpu.memory_bytes, model.main_bytes
    if need <= have:
        return None
    message = (
        f"does not fit: the weights alone take {bytes_text(need)}, and {target.gpus} x {target.gpu.name} have "
        f"{bytes_text(have)} ({target.gpu.memory_text} each)"
    )
    return Finding(
        rule="weights-fit", about=("target.gpus",), message=message, hint=what_would(model, target, wish), is_size=True
    )


def size_findings(case: Case) -> list[Finding]:
    """Why this shape does not fit, in the order in which memory runs out."""
    rank = min(case.ranks, key=lambda r: r.free_bytes)
    gpu, per = case.target.gpu, f"per GPU of {case.shape}"
    if rank.weights_bytes > gpu.memory_bytes:
        message = (
            f"does not fit: weights alone take {bytes_text(rank.weights_bytes)} {per}, "
            f"and {gpu.name} has {gpu.memory_text}"
        )
    elif rank.free_bytes <= 0:
        others = rank.before_cache_bytes - rank.weights_bytes - rank.activations_bytes
        message = (
            f"does not fit: weights {bytes_text(rank.weights_bytes)}, a step of {case.max_num_tokens} tokens "
            f"{bytes_text(rank.activations_bytes)} and overheads {bytes_text(others)} {per} are above {gpu.memory_text}"
        )
    elif case.sequences < 1:
        needed = case.wish.max_seq_len_tokens * rank.kv_bytes_per_token + rank.kv_bytes_per_request
        message = (
            f"does not fit: one sequence of {case.wish.max_seq_len_tokens} tokens takes {bytes_text(needed)} of cache, "
            f"and {bytes_text(rank.kv_bytes)} are left for it on {rank.label}"
        )
    elif case.worst.left_over_bytes < 0:
        return [_overcommitted(case)]
    else:
        return []
    hint = what_would(case.model, case.target, case.wish)
    is_right_hardware = precision_refusal(case.model.precision, gpu) is None
    if is_right_hardware and rank.weights_bytes <= gpu.memory_bytes:
        hint = f"a smaller --max-num-tokens or --max-seq-len, or {hint}"
    return [Finding(rule="memory-fits", about=("parallel.tp",), message=message, hint=hint, is_size=True)]


def _overcommitted(case: Case) -> Finding:
    worst = case.worst
    possible = (worst.free_bytes - worst.graphs_bytes) / worst.free_bytes
    message = (
        f"kv fraction {case.fraction} gives the cache {bytes_text(worst.kv_bytes)} of {bytes_text(worst.free_bytes)} "
        f"free on {worst.label}, and CUDA graphs need {bytes_text(worst.graphs_bytes)} more: "
        f"{bytes_text(-worst.left_over_bytes)} too much"
    )
    largest = max(int(possible * 20) / 20, 0.05)
    hint = f"--kv-fraction {largest:g} or less, or a smaller --max-num-tokens"
    return Finding(rule="memory-overcommitted", about=("kv_cache.fraction",), message=message, hint=hint, is_size=True)


def what_would(model: Model, target: Target, wish: Wish) -> str:
    """The smallest number of these GPUs, else of common ones."""
    own = smallest_count(model, target, wish, target.gpu)
    if own is not None:
        return f"smallest that would: {_count_text(own)}"
    others = [smallest_count(model, target, wish, catalogue()[name]) for name in _COMMON]
    texts = [_count_text(case) for case in others if case is not None]
    return f"smallest that would: {'; '.join(texts)}" if texts else "no number of known GPUs up to 128 would"


def _count_text(case: Case) -> str:
    nodes = f" on {case.target.nodes} nodes" if case.target.nodes > 1 else ""
    each = case.most_weights_bytes / GIB
    return f"{case.target.gpus} x {case.target.gpu.name}{nodes} ({case.shape}; {each:.1f} GiB of weights each)"


def _hardware(rule: str, message: str, fitting: list[str]) -> Finding:
    return Finding(
        rule=rule,
        about=("target.gpu",),
        message=message,
        hint=f"such as {', '.join(fitting[:4])}" if fitting else "none known",
    )
