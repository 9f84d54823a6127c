"""What it means to let the cache leave the GPU: host memory for evicted blocks, or unified memory.

Host offload is the sound way (whole blocks, moved on purpose); unified memory pages on every access. Both are priced by
the time that bringing one sequence back takes.
"""

from __future__ import annotations

from typing import Final

from seekserve.output import bytes_text

from .case import Case
from .finding import Finding

__all__ = ["spill_findings"]

_HOST_LINK_BYTES_PER_S: Final = 25e9
"""PCIe gen 4 x16 in practice, the cautious figure."""


def spill_findings(case: Case, host_cache_bytes: int, *, use_uvm: bool) -> list[Finding]:
    found = []
    per_token = sum(rank.kv_bytes_per_token for rank in {rank.stage: rank for rank in case.ranks}.values())
    length = case.wish.isl + case.wish.osl
    back_ms = length * per_token / _HOST_LINK_BYTES_PER_S * 1000
    if host_cache_bytes:
        copies = 1 if case.shape.attention_dp else case.shape.tp
        tokens = host_cache_bytes // max(per_token * copies, 1)
        message = (
            f"{bytes_text(host_cache_bytes)} of host memory hold {tokens:,} more tokens for reuse (host_cache_size); a "
            f"sequence of {length} tokens comes back in about {back_ms:.0f} ms per GPU"
        )
        hint = "evicted prefixes only: running requests still need their blocks on the GPU"
        found.append(Finding(rule="host-cache", message=message, hint=hint, severity="note"))
    if use_uvm:
        message = (
            f"use_uvm lets the cache exceed the GPU, and every step that reads a spilled sequence pages it in: about "
            f"{back_ms:.0f} ms for {length} tokens"
        )
        hint = "--host-cache GIB moves whole blocks instead and is preferred"
        found.append(
            Finding(rule="kv-uvm", about=("kv_cache.use_uvm",), message=message, hint=hint, severity="warning")
        )
    return found
