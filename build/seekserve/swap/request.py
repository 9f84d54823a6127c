"""What the flags of `swap` say. Imports nothing heavy: the command line shows these defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["HOW", "SwapRequest"]

HOW = ("auto", "side-by-side", "drain")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapRequest:
    repository: Path | None
    to: str
    """A bundle folder, or the name of a variant beside the present bundle."""
    model: str | None = None
    pid_file: Path | None = None
    launch_id: str | None = None
    how: str = HOW[0]
    gpus: tuple[str, ...] = ()
    """`0,1` for each instance."""
    drain_timeout_s: float = 300.0
    """Sessions that run when a swap begins may go on this long."""
    allow_other_model: bool = False
    force: bool = False
