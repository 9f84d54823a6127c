"""Counts parameters from the layout: total, main, active, MTP and by part.

Active is per generated token, with both embedding matrices and the router, without Engram, vision and MTP. Each
parameter counts once: the embedding and head copies that an MTP layer is stored with are in `stored` only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .layout import Block

__all__ = ["Parameters", "count_parameters"]

_NOT_PER_TOKEN: Final = ("vision", "engram_tables", "engram_projections")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    main: int
    """Without MTP layers."""
    active: int | None
    """None when the family is unknown."""
    mtp: int
    stored: int
    """With the copies that MTP layers hold: what a published file count shows."""
    by_part: Mapping[str, int]

    @property
    def total(self) -> int:
        return self.main + self.mtp

    def to_json(self) -> dict[str, object]:
        return {
            "total": self.total,
            "main": self.main,
            "active": self.active,
            "mtp": self.mtp,
            "stored": self.stored,
            "by_part": dict(self.by_part),
        }


def count_parameters(blocks: Iterable[Block], *, with_mtp: bool = True) -> Parameters:
    """`with_mtp=False` when the files hold no MTP layers although the config announces some."""
    parts: dict[str, int] = {}
    active = copies = mtp = 0
    for block in blocks:
        if block.is_mtp and not with_mtp:
            continue
        for expected in block.rows:
            each = math.prod(expected.shape)
            count = each * len(block.layers) * block.experts
            row = expected.row
            if not row.is_parameter:
                copies += count if block.is_mtp else 0
                continue
            part = "mtp" if block.is_mtp else row.part
            parts[part] = parts.get(part, 0) + count
            if block.is_mtp:
                mtp += count
            elif row.part not in _NOT_PER_TOKEN:
                active += each * len(block.layers) * min(block.active_experts, block.experts)
    main = sum(parts.values()) - mtp
    return Parameters(main=main, active=active, mtp=mtp, stored=main + mtp + copies, by_part=parts)
