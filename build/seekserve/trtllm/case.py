"""What is known about the model and the GPU beside the arguments; rules that need it are silent without it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ModelCase"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCase:
    architecture: str = ""
    """As `seekserve inspect` names it, e.g. `deepseek_v3`; empty: unknown."""
    weights: str = ""
    """Precision of the projections, e.g. `fp8_block`, `w4afp8`, `bf16`; empty: unknown."""
    kv_dtype: str = ""
    """`bf16`, `fp8_e4m3` or `int8`; empty: unknown."""
    sm: int = 0
    """Compute capability x 10; 0: unknown."""
    world_size: int = 1

    @property
    def is_mla(self) -> bool:
        return self.architecture in ("deepseek_v2", "deepseek_v3", "deepseek_v32")

    @property
    def is_v4(self) -> bool:
        return self.architecture in ("deepseek_v4", "deepseek_v41")
