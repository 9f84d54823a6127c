"""Shared-memory files of one launch: named by its own prefix, and only those are ever removed."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SHM_DIR", "TRITON_DEFAULT_PREFIX", "clean", "leftovers", "prefix_of"]

SHM_DIR = Path("/dev/shm")
TRITON_DEFAULT_PREFIX = "triton_python_backend_shm_region_"
_OURS = "seekserve_"


def prefix_of(launch_id: str) -> str:
    """Unique to the launch and never a prefix of another launch's, since ids have one length."""
    assert launch_id
    assert "/" not in launch_id
    return f"{_OURS}{launch_id}_"


def leftovers(prefix: str, shm_dir: Path = SHM_DIR) -> list[Path]:
    if not shm_dir.is_dir():
        return []
    return sorted(path for path in shm_dir.iterdir() if path.name.startswith(prefix))


def clean(prefix: str, shm_dir: Path = SHM_DIR) -> int:
    """Removes what the prefix names and says how many that were; call only when no process of the launch is left."""
    assert prefix.startswith(_OURS), prefix
    assert len(prefix) > len(_OURS) + 1, prefix
    found = leftovers(prefix, shm_dir)
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)
