"""The same model in other precisions on the same GPUs: bytes, whether GPU and engine have it, whether it fits.

Answers "which precision for which service" by arithmetic for this model instead of a fixed table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from .case import Case, work_out
from .storage import storage_of_kind
from .support import precision_refusal, weights_supported
from .weights import groups_as_kind

__all__ = ["PrecisionOption", "precision_options"]

_KINDS: Final = ("bf16", "int8", "fp8_tensor", "fp8_block", "nvfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionOption:
    kind: str
    is_own: bool
    """What the checkpoint holds."""
    weights_bytes_per_gpu: int
    kv_tokens: int
    has_hardware: bool
    has_engine: bool
    fits: bool

    @property
    def verdict(self) -> str:
        if not self.has_hardware:
            return "no kernels on this GPU"
        if not self.has_engine:
            return "not run by this engine for this model"
        return "fits" if self.fits else "does not fit"


def precision_options(case: Case) -> tuple[PrecisionOption, ...]:
    own = case.model.precision
    kinds = dict.fromkeys((*_KINDS, own))
    return tuple(_option(case, kind, is_own=kind == own) for kind in kinds if kind == own or storage_of_kind(kind))


def _option(case: Case, kind: str, *, is_own: bool) -> PrecisionOption:
    model = case.model
    if not is_own:
        groups = groups_as_kind(model.groups, kind, model.quantisable)
        model = replace(model, precision=kind, groups=groups)
    other = case if is_own else work_out(model, case.target, case.wish, case.shape)
    support = case.target.support
    return PrecisionOption(
        kind=kind,
        is_own=is_own,
        weights_bytes_per_gpu=other.most_weights_bytes,
        kv_tokens=other.capacity.tokens,
        has_hardware=precision_refusal(kind, case.target.gpu) is None,
        has_engine=support is not None and weights_supported(support, kind),
        fits=other.fits,
    )
