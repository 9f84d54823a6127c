"""What a conversion needs of the machine: disk for the output, memory for the buffers. Checked before it begins."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seekserve.errors import DoesNotFit
from seekserve.output import bytes_text

from .layout import OutputShard
from .plan import ConversionPlan
from .worker import buffer_bytes

__all__ = ["Needs", "check_needs", "needs_of"]

_RESERVE_BYTES: Final = 64 * 1024 * 1024
_RUNTIME_BYTES: Final = 500 * 1024 * 1024  # Python with torch, measured 330 to 400 MB
_KERNEL_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    disk_bytes: int
    memory_bytes: int
    disk_free_bytes: int
    memory_free_bytes: int

    def to_json(self) -> dict[str, int]:
        return {
            "disk_bytes": self.disk_bytes,
            "memory_bytes": self.memory_bytes,
            "disk_free_bytes": self.disk_free_bytes,
            "memory_free_bytes": self.memory_free_bytes,
        }

    def __str__(self) -> str:
        return (
            f"disk {bytes_text(self.disk_bytes)} of {bytes_text(self.disk_free_bytes)} free, "
            f"memory {bytes_text(self.memory_bytes)} of {bytes_text(self.memory_free_bytes)} free"
        )


def needs_of(
    plan: ConversionPlan, shards: Iterable[OutputShard], place: Path, *, workers: int, memory_free_bytes: int
) -> Needs:
    """`shards` are those that are still to be written; `place` is the folder that OUT will stand in."""
    largest = max((buffer_bytes(work) for work in plan.works), default=0)
    return Needs(
        disk_bytes=sum(shard.size_bytes for shard in shards) + _RESERVE_BYTES,
        memory_bytes=_RUNTIME_BYTES + workers * (largest + _KERNEL_BYTES),
        disk_free_bytes=shutil.disk_usage(place).free,
        memory_free_bytes=memory_free_bytes,
    )


def check_needs(needs: Needs, place: Path) -> None:
    if needs.disk_free_bytes < needs.disk_bytes:
        raise DoesNotFit(
            f"the output needs {bytes_text(needs.disk_bytes)}, {place} has {bytes_text(needs.disk_free_bytes)} free",
            hint="free some space, or choose another place for OUT",
        )
    if needs.memory_free_bytes < needs.memory_bytes:
        raise DoesNotFit(
            f"the conversion needs {bytes_text(needs.memory_bytes)} of memory, "
            f"{bytes_text(needs.memory_free_bytes)} are available",
            hint="end something else, or take fewer --workers",
        )
