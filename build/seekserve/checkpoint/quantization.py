"""What the configuration files declare about precision: `quantization_config` and NVIDIA's hf_quant_config.json.

Declared only: what the tensors really hold is found by `precision.py`, and the two are compared in `integrity.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .findings import Collector, printable

__all__ = ["Quantization", "from_modelopt", "read_quantization"]

# modelopt's quant_algo -> our word for the precision of the projections. The W4A-FP8 exports of V3 are MIXED_PRECISION:
# W4A8_AWQ of the whole model is AWQ with FP8 activations, which Llama and Qwen have.
MODELOPT_KINDS: Final = {
    "FP8": "fp8_tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel",
    "FP8_PB_WO": "fp8_block",
    "FP8_BLOCK_SCALES": "fp8_block",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A8_AWQ": "w4a8_awq",
    "W4A8_NVFP4_FP8": "nvfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "MIXED_PRECISION": "mixed",
}

_NO_QUANTISATION: Final = ("bf16", "bfloat16", "fp16", "float16", "fp32", "float32", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    file: str
    method: str
    """As spelt: fp8, modelopt, awq, ..."""
    kind: str
    """Our word for it: fp8_block, fp8_tensor, fp8_channel, nvfp4, mxfp4, w4a8_awq, mixed; else the method itself."""
    block_shape: tuple[int, int] | None
    scale_fmt: str | None
    expert_kind: str | None
    """mxfp4 when routed experts are declared in another precision than the rest."""
    excluded: tuple[str, ...]
    """Module names or patterns that stay unquantised."""


def read_quantization(
    outer: Mapping[str, Any], text: Mapping[str, Any], file: str, findings: Collector
) -> Quantization | None:
    block = outer.get("quantization_config", text.get("quantization_config"))
    if block is None:
        return None
    if not isinstance(block, dict):
        findings.error(
            "config-field", file, f"quantization_config is {printable(repr(block), 60)} where an object is needed"
        )
        return None
    method = block.get("quant_method")
    if not isinstance(method, str) or not method:
        findings.error("config-field", file, "quantization_config has no quant_method; write fp8, or remove the block")
        return None
    if method.lower() in _NO_QUANTISATION:
        sentence = f"quant_method {method!r} is no quantisation; remove quantization_config from a plain checkpoint"
        findings.error("config-field", file, sentence)
        return None
    if method == "modelopt" or "quant_algo" in block:
        return from_modelopt(block, file, method)
    shape = _block_shape(block, file, findings)
    kind = ("fp8_block" if shape else "fp8_tensor") if method == "fp8" else method
    return Quantization(
        file=file,
        method=method,
        kind=kind,
        block_shape=shape,
        scale_fmt=block.get("scale_fmt") if isinstance(block.get("scale_fmt"), str) else None,
        expert_kind=_expert_kind(outer, text, block),
        excluded=_names(block, "modules_to_not_convert", "ignored_layers", "ignore"),
    )


def from_modelopt(block: Mapping[str, Any], file: str, method: str = "modelopt") -> Quantization:
    """Both forms: quantization_config with quant_algo, and the `quantization` object of hf_quant_config.json."""
    algorithm = block.get("quant_algo")
    word = algorithm if isinstance(algorithm, str) else "unknown"
    kind = MODELOPT_KINDS.get(word.upper(), word.lower())
    return Quantization(
        file=file,
        method=method,
        kind=kind,
        block_shape=(128, 128) if kind == "fp8_block" else None,
        scale_fmt=None,
        expert_kind=None,
        excluded=_names(block, "exclude_modules", "ignore"),
    )


def _block_shape(block: Mapping[str, Any], file: str, findings: Collector) -> tuple[int, int] | None:
    value = block.get("weight_block_size")
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(v) is int and 1 <= v <= 65536 for v in value):
        return value[0], value[1]
    findings.error(
        "config-field",
        file,
        f"weight_block_size is {printable(repr(value), 60)} where two positive integers are needed",
    )
    return None


def _expert_kind(outer: Mapping[str, Any], text: Mapping[str, Any], block: Mapping[str, Any]) -> str | None:
    for source in (text, outer, block):
        if source.get("expert_dtype") == "fp4":
            return "mxfp4"
    # V4.1 ships MXFP4 experts without saying so in a confirmed place
    return "mxfp4" if str(outer.get("model_type", "")).startswith("deepseek_v41") else None


def _names(block: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    found: list[str] = []
    for key in keys:
        value = block.get(key)
        if isinstance(value, list):
            found += [v for v in value if isinstance(v, str)]
    return tuple(found)
