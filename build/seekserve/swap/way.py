"""Side by side or drained: whether both engines fit at once, with the numbers that decide it.

CPU engines fit when the host has the memory that the new one takes; engines on GPUs when they use other GPUs than the
present one. A plan made `--beside` another would prove more, but bundles do not record it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import DoesNotFit
from seekserve.output import bytes_text
from seekserve_backend.contract.bundle import Bundle

__all__ = ["Way", "choose_way", "needed_bytes"]

_COMPUTE_BYTES = 4
"""The reference engine computes in float32, however the weights are stored."""
_PROCESS_BYTES = 1 << 30
"""A stub with PyTorch and the tokenizer."""
Gpus = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    how: str
    why: str


def choose_way(
    asked: str,
    new: Bundle,
    *,
    old_gpus: Gpus,
    new_gpus: Gpus,
    needed: Callable[[], int],
    available_bytes: int,
) -> Way:
    """`needed`: bytes of host memory that the new engine takes. Raises DoesNotFit for side-by-side that cannot be."""
    fits, why = _fit(new, old_gpus, new_gpus, needed, available_bytes)
    if asked == "drain":
        return Way(how="drain", why=f"asked for; {why}")
    if fits:
        return Way(how="side-by-side", why=why)
    if asked == "side-by-side":
        raise DoesNotFit(f"--how side-by-side: {why}", hint="use --how drain, or leave it out")
    return Way(how="drain", why=why)


def _fit(
    new: Bundle, old_gpus: Gpus, new_gpus: Gpus, needed: Callable[[], int], available_bytes: int
) -> tuple[bool, str]:
    if new.trtllm is None:
        need_bytes = needed()
        numbers = f"the new engine takes {bytes_text(need_bytes)}, {bytes_text(available_bytes)} are available"
        if need_bytes <= available_bytes:
            return True, f"both fit at once: {numbers}"
        return False, f"both do not fit at once: {numbers}"
    old, fresh = _flat(old_gpus), _flat(new_gpus)
    if not old or not fresh:
        return False, "both would take the same GPUs: none are chosen, so each takes the first ones"
    shared = sorted(old & fresh)
    if shared:
        return False, f"both would use GPU {', '.join(map(str, shared))}; --gpus chooses others"
    return True, f"they use different GPUs: {_text(old)} now, {_text(fresh)} then"


def needed_bytes(bundle: Bundle, folder: Path, *, instances: int) -> int:
    """Weights, the whole KV cache and a process, for each instance."""
    if bundle.engine != "reference":
        return instances * _PROCESS_BYTES
    from seekserve.checkpoint import read_checkpoint

    weights = read_checkpoint(folder / "weights").parameters.main * _COMPUTE_BYTES
    return instances * (weights + bundle.kv.capacity_tokens * bundle.kv.bytes_per_token + _PROCESS_BYTES)


def _flat(gpus: Gpus) -> set[int]:
    return {gpu for group in gpus for gpu in group}


def _text(gpus: set[int]) -> str:
    return ",".join(map(str, sorted(gpus)))
