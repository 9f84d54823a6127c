"""What to look at when ranks did not come up: those that cannot share memory or reach each other's GPUs just hang."""

from __future__ import annotations

import os
import re
import subprocess

from seekserve.output import bytes_text
from seekserve.server.shm import SHM_DIR

__all__ = ["peer_fact", "shm_fact", "start_facts"]

_ROW = re.compile(r"\s*GPU(\d+)\s+(.+)")
_SMALL_SHM_BYTES = 1 << 30


def start_facts() -> list[str]:
    return [shm_fact(*_shm_bytes()), peer_fact(_p2p_matrix())]


def shm_fact(total_bytes: int | None, free_bytes: int | None) -> str:
    if total_bytes is None or free_bytes is None:
        return f"{SHM_DIR}: cannot be looked at"
    text = f"{SHM_DIR}: {bytes_text(free_bytes)} of {bytes_text(total_bytes)} free"
    if total_bytes < _SMALL_SHM_BYTES:
        text += (
            "; NCCL and the Python backend need more: start the container with --shm-size=1g or above, or --ipc=host"
        )
    return text


def peer_fact(matrix: str | None) -> str:
    """From `nvidia-smi topo -p2p r`: which pairs of GPUs cannot read each other's memory."""
    if matrix is None:
        return "GPU peer access: unknown (no answer of nvidia-smi)"
    refused, pairs = [], 0
    for line in matrix.splitlines():
        row = _ROW.fullmatch(line.rstrip())
        cells = row.group(2).split() if row else []
        if row is None or cells[0].startswith("GPU"):
            continue
        for column, cell in enumerate(cells):
            if column > int(row.group(1)):
                pairs += 1
                refused += [f"{row.group(1)}-{column} {cell}"] if cell != "OK" else []
    if not refused:
        return f"GPU peer access: all {pairs} pairs can read each other"
    return f"GPU peer access: not between {', '.join(refused)}; if NCCL hangs, try NCCL_P2P_DISABLE=1"


def _shm_bytes() -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(SHM_DIR)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _p2p_matrix() -> str | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-p2p", "r"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
