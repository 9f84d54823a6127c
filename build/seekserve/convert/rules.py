"""Which tensors DeepSeek's FP8 layout quantises, per family, and where that is known from.

Decided by the tensor's place in the family's layout (`checkpoint.names`), never by pieces of its name: whatever is not
a projection of one of the listed parts stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seekserve.checkpoint.layout import Expected

__all__ = ["FP8_CONFIG", "QUANTISED_PARTS", "RULES", "FamilyRule", "is_kept_wide", "is_quantised"]

FP8_CONFIG: Final = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}
"""`quantization_config` of the release (deepseek-ai/DeepSeek-V3, config.json and README_WEIGHTS.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRule:
    parts: tuple[str, ...]
    """Parts whose projections are quantised; embeddings, head, norms, router and MTP entry are no such part."""
    source: str


QUANTISED_PARTS: Final = ("attention", "dense_mlp", "routed_experts", "shared_experts")
_V3_SOURCE: Final = (
    "deepseek-ai/DeepSeek-V3: model.safetensors.index.json and README_WEIGHTS.md; that the MTP layer's eh_proj is "
    "stored in bf16 without a scale: ROCm/ATOM pull 755"
)
RULES: Final[dict[str, FamilyRule]] = {
    "deepseek_v3": FamilyRule(parts=QUANTISED_PARTS, source=_V3_SOURCE),
    "deepseek_v2": FamilyRule(
        parts=QUANTISED_PARTS,
        source="no FP8 release of V2 or V2-Lite exists: the rule of V3, whose attention and expert names V2 shares",
    ),
}


def is_quantised(expected: Expected | None, rule: FamilyRule) -> bool:
    return expected is not None and expected.row.is_projection and expected.row.part in rule.parts


def is_kept_wide(name: str) -> bool:
    """The router's correction bias is float32 in the release, whatever the rest is stored in."""
    return name.endswith(".e_score_correction_bias")
