"""What runs where: family x engine kind x TensorRT-LLM version, and which GPU generation has which precision.

The first is asked of `seekserve.trtllm`, the second is data in facts/support.yaml. A refusal says why in one sentence,
and what works.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from seekserve.errors import ConfigError
from seekserve.trtllm import known_versions
from seekserve.trtllm import support as trtllm_support
from seekserve.trtllm.data import facts

from .gpus import FACTS_FOLDER, Gpu, catalogue
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
    default_version: str
    min_sm: int
    weights: tuple[str, ...]
    kv: tuple[str, ...]
    has_mtp: bool
    has_attention_dp: bool


def support_for(family: str, engine: str) -> Support | None:
    architecture = _architecture(family)
    entry = _models()[architecture]["engines"].get(engine) if architecture else None
    if entry is None:
        return None
    table = _table()
    return Support(
        engine=engine,
        default_version=_default_version(architecture or "", engine),
        min_sm=table["min_sm"].get(architecture, table["min_sm"]["default"]),
        weights=tuple(entry["weights"]),
        kv=tuple(entry["kv"]),
        has_mtp=entry["mtp"],
        has_attention_dp=engine == "trtllm-pytorch" and architecture in table["attention_dp"],
    )


def default_engine(family: str) -> str:
    """The first that runs the family; the PyTorch backend when none does, so that the refusal speaks of it."""
    return next((engine for engine in GPU_ENGINES if support_for(family, engine)), GPU_ENGINES[0])


def engine_refusal(family: str, title: str, engine: str, version: str) -> tuple[str, str] | None:
    """(why not, what works) when this engine kind or version cannot run the family."""
    architecture = _architecture(family)
    if architecture is None:
        return f"{title} runs on no engine kind that is known here", "`seekserve versions` shows what does"
    try:
        found = trtllm_support(architecture, engine, version)
    except ConfigError as error:
        return error.message, error.hint or ""
    if found.ok:
        return None
    why, _, works = found.sentence.rpartition("; ")
    return why, works


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


def _architecture(family: str) -> str | None:
    return next((name for name, entry in _models().items() if family in entry["families"]), None)


def _default_version(architecture: str, engine: str) -> str:
    """The newest release that runs it, else the newest candidate."""
    known = [version for version in known_versions() if trtllm_support(architecture, engine, version).ok]
    releases = [version for version in known if "rc" not in version]
    return (releases or known)[-1]


def _models() -> Mapping[str, Any]:
    models: Mapping[str, Any] = facts("families")["architectures"]
    return models


@functools.cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = read_yaml(FACTS_FOLDER / "support.yaml", setting="support table")
    return table
