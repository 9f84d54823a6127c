"""Two engines on the same GPUs: whether a saved plan and this one leave room for each other.

Each engine takes a fraction of what it finds free, so two plans made alone promise the same memory twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seekserve.errors import ConfigError
from seekserve.output import bytes_text

from .case import Case
from .cost import read_plan_json
from .finding import Finding

__all__ = ["read_saved_ranks", "sharing_findings"]


def read_saved_ranks(path: Path) -> tuple[str, list[Mapping[str, Any]]]:
    """(what it is, its ranks) of a saved `plan --json`. Raises ConfigError when the file is none."""
    data = read_plan_json(path, "--beside")
    memory = data.get("memory")
    ranks = memory.get("ranks") if isinstance(memory, dict) else None
    names = ("total_bytes", "left_over_bytes", "kv_cache_bytes")
    if not isinstance(ranks, list) or not ranks or not all(_has_integers(rank, names) for rank in ranks):
        raise ConfigError(f"--beside: {path} has no memory of ranks", hint="save it with `seekserve plan ... --json`")
    return str(data.get("name", path.name))[:80], ranks


def sharing_findings(case: Case, name: str, ranks: list[Mapping[str, Any]]) -> list[Finding]:
    """Compared rank by rank at the fullest of both, since launchers fill GPUs from the first on."""
    ours = case.worst
    own = ours.total_bytes - ours.left_over_bytes
    fullest = max(ranks, key=lambda rank: rank["total_bytes"] - rank["left_over_bytes"])
    other = fullest["total_bytes"] - fullest["left_over_bytes"]
    if own + other <= ours.total_bytes:
        return []
    message = (
        f"this plan takes {bytes_text(own)} of each GPU ({bytes_text(ours.kv_bytes)} of it cache, fraction "
        f"{case.fraction:g}) and {name} takes {bytes_text(other)} ({bytes_text(fullest['kv_cache_bytes'])} cache) of "
        f"the same {bytes_text(ours.total_bytes)}: {bytes_text(own + other - ours.total_bytes)} are promised twice"
    )
    room = ours.total_bytes - other - (own - ours.kv_bytes)
    if room <= 0:
        hint = f"a smaller cache in {name}, or other GPUs"
    else:
        tokens = room // max(ours.kv_bytes_per_token, 1) * case.shape.kv_pools
        hint = f"--kv-capacity-tokens {tokens // case.wish.block_tokens * case.wish.block_tokens}, or other GPUs"
    return [Finding(rule="gpu-shared", about=("kv_cache.fraction",), message=message, hint=hint, is_size=True)]


def _has_integers(value: object, names: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and all(type(value.get(name)) is int for name in names)
