"""What runs where: family x engine kind x TensorRT-LLM version, and which GPU generation has which precision.

All of it is data in facts/support.yaml; here are the questions. A refusal says why in one sentence, and what works.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .gpus import FACTS_FOLDER, Gpu, catalogue
from .versions import version_key
from .yaml_file import read_yaml

__all__ = [
    "GPU_ENGINES",
    "Support",
    "block_choices",
    "default_engine",
    "engine_refusal",
    "has_mla_kernels",
    "is_known_precision",
    "precision_refusal",
    "support_for",
    "weights_supported",
]

GPU_ENGINES: Final = ("trtllm-pytorch", "trtllm-engine")
_ALIKE: Final = {"fp16": "bf16", "fp32": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    engine: str
    since: str
    until: str | None
    default_version: str
    min_sm: int
    weights: tuple[str, ...]
    kv: tuple[str, ...]
    has_mtp: bool
    has_attention_dp: bool

    def covers(self, version: str) -> bool:
        key = version_key(version)
        return version_key(self.since) <= key and (self.until is None or key <= version_key(self.until))

    @property
    def span(self) -> str:
        return f"{self.since} to {self.until}" if self.until else f"{self.since} and later"


def support_for(family: str, engine: str) -> Support | None:
    entry = _table()["families"].get(family, {}).get(engine)
    if entry is None:
        return None
    return Support(
        engine=engine,
        since=entry["since"],
        until=entry.get("until"),
        default_version=entry["default_version"],
        min_sm=entry["min_sm"],
        weights=tuple(entry["weights"]),
        kv=tuple(entry["kv"]),
        has_mtp=entry.get("mtp", False),
        has_attention_dp=entry.get("attention_dp", False),
    )


def default_engine(family: str) -> str:
    """The first that runs the family; the PyTorch backend when none does, so that the refusal speaks of it."""
    return next((engine for engine in GPU_ENGINES if support_for(family, engine)), GPU_ENGINES[0])


def engine_refusal(family: str, title: str, engine: str, version: str) -> tuple[str, str] | None:
    """(why not, what works) when this engine kind or version cannot run the family."""
    support = support_for(family, engine)
    others = [found for other in GPU_ENGINES if other != engine and (found := support_for(family, other)) is not None]
    alternative = (
        f"--engine {others[0].engine} (TensorRT-LLM {others[0].span})" if others else "no engine kind runs it yet"
    )
    if support is None:
        why = _table()["why_not"].get(f"{family}/{engine}")
        reason = f": {why}" if why else ""
        return f"{title} does not run on engine kind {engine}{reason}", alternative
    if support.covers(version):
        return None
    message = f"{title} runs on engine kind {engine} with TensorRT-LLM {support.span}, asked for is {version}"
    last = version_key(version) > version_key(support.until) if support.until else False
    works = f"--trtllm-version {support.until if last else support.default_version}"
    return message, f"{works}, or {alternative}" if others else works


def precision_refusal(precision: str, gpu: Gpu) -> tuple[str, tuple[str, ...]] | None:
    """(why not, GPUs of the catalogue that have it); a `+` joins the precisions of parts, each must be there."""
    kinds = precision.split("+")
    missing = [kind for kind in kinds if not _has(kind, gpu.sm)]
    if not missing:
        return None
    whys = [f"{kind} needs other hardware: {_precision(kind).get('why', '')}" for kind in missing]
    fitting = tuple(name for name, other in catalogue().items() if all(_has(kind, other.sm) for kind in kinds))
    return f"{gpu.name} is {gpu.architecture} (SM{gpu.sm}), and {'; '.join(whys)}", fitting


def is_known_precision(precision: str) -> bool:
    return all(kind in _table()["precisions"] for kind in precision.split("+"))


def weights_supported(support: Support, precision: str) -> bool:
    return _ALIKE.get(precision, precision) in support.weights


def block_choices(architecture: str, gpu: Gpu, engine: str) -> tuple[int, tuple[int, ...], str]:
    """(default tokens per block, allowed ones, why)."""
    table = _table()["kv_block_tokens"]
    if architecture.startswith("deepseek_v4"):
        key, why = "deepseek_v4", "V4's cache manager takes 128 or 256"
    elif architecture == "deepseek_v32":
        key, why = "deepseek_v3_2", "the sparse-attention indexer works in blocks of 64"
    elif architecture == "deepseek_v3" and gpu.sm == 90 and engine == "trtllm-pytorch":
        key, why = "hopper_mla", "FlashMLA on Hopper takes 64 only"
    else:
        key, why = "default", "powers of two from 8 to 128"
    allowed = table["allowed"][key]
    return table[key], tuple(allowed), why


def has_mla_kernels(feature: str, sm: int) -> bool:
    """`feature` is `reuse` or `chunked_prefill`: elsewhere the executor turns it off with a mere warning."""
    return sm in _table()[f"{feature}_sms"]


def _precision(kind: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = _table()["precisions"].get(kind, {})
    return entry


def _has(kind: str, sm: int) -> bool:
    entry = _precision(kind)
    return sm in entry["sms"] if "sms" in entry else sm >= entry.get("min_sm", 0)


@functools.cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = read_yaml(FACTS_FOLDER / "support.yaml", setting="support table")
    return table
