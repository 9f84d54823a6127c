"""How one engine replica is laid over GPUs: TP x PP, and inside TP the experts by EP or by MoE-TP, attention DP or not.

Arithmetic of the split only; which shapes are legal for a model is `parallel.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Shape", "stage_layers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    tp: int = 1
    pp: int = 1
    ep: int = 1
    """Expert parallel size inside TP; the rest of TP cuts each expert (`moe_tp`)."""
    attention_dp: bool = False
    """Attention, dense layers, embedding and head whole on every TP rank, requests divided instead."""

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def moe_tp(self) -> int:
        return max(self.tp // self.ep, 1)

    @property
    def attention_tp(self) -> int:
        return 1 if self.attention_dp else self.tp

    @property
    def kv_pools(self) -> int:
        """Independent caches of one pipeline stage: with attention DP each rank holds its own requests."""
        return self.tp if self.attention_dp else 1

    def __str__(self) -> str:
        text = f"TP {self.tp}"
        text += f" x PP {self.pp}" if self.pp > 1 else ""
        text += f", EP {self.ep}" if self.ep > 1 else ""
        text += f", MoE-TP {self.moe_tp}" if self.ep > 1 and self.moe_tp > 1 else ""
        return text + (", attention DP" if self.attention_dp else "")

    def to_json(self) -> dict[str, object]:
        return {
            "tp": self.tp,
            "pp": self.pp,
            "ep": self.ep,
            "moe_tp": self.moe_tp,
            "attention_dp": self.attention_dp,
            "gpus": self.gpus,
        }


def stage_layers(layers: int, pp: int) -> tuple[range, ...]:
    """Contiguous stages; the first ones get the layers left over, as TensorRT-LLM divides them."""
    base, extra = divmod(layers, pp)
    bounds = [0]
    for stage in range(pp):
        bounds.append(bounds[-1] + base + (stage < extra))
    return tuple(range(bounds[i], bounds[i + 1]) for i in range(pp))
