"""Which model this is, by the content of config.json (and the chat template), never by a folder or repository name.

`architecture` says how tensors and cache are laid out and is what code branches on; `family` is as specific as the
files allow; `title` is for people and says so when two releases cannot be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .config import ModelConfig
from .findings import Collector

__all__ = ["ARCHITECTURES", "Identity", "identify", "missing_fields"]

_BY_MODEL_TYPE: Final = {
    "deepseek": "deepseek_moe",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v3": "deepseek_v3",
    "deepseek_v32": "deepseek_v32",
    "deepseek_v4": "deepseek_v4",
    "deepseek_v41": "deepseek_v41",
    "deepseek_v41_text": "deepseek_v41",
    "qwen2": "qwen2",
    "llama": "llama",
}
_BY_CLASS: Final = {
    "DeepseekForCausalLM": "deepseek_moe",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "DeepseekV41ForCausalLM": "deepseek_v41",
    "Qwen2ForCausalLM": "qwen2",
    "LlamaForCausalLM": "llama",
}
ARCHITECTURES: Final = tuple(dict.fromkeys(_BY_CLASS.values()))

_MOE: Final = ("moe_intermediate_size", "n_routed_experts", "num_experts_per_tok")
_MLA: Final = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size")
_INDEXER: Final = ("index_n_heads", "index_head_dim", "index_topk")
_V4: Final = (*_MOE, *_INDEXER, "head_dim", "q_lora_rank", "o_lora_rank", "o_groups", "hc_mult", "sliding_window")
_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "deepseek_moe": (*_MOE, "intermediate_size"),
    "deepseek_v2": (*_MOE, *_MLA),
    "deepseek_v3": (*_MOE, *_MLA, "q_lora_rank"),
    "deepseek_v32": (*_MOE, *_MLA, *_INDEXER, "q_lora_rank"),
    "deepseek_v4": (*_V4, "compress_ratios"),
    "deepseek_v41": (*_V4, "compress_ratios", "kv_source_layer_ids", "index_source_layer_ids"),
    "qwen2": ("intermediate_size",),
    "llama": ("intermediate_size",),
}
_OPTIONAL: Final = (
    *("first_k_dense_replace", "moe_layer_freq", "n_shared_experts", "intermediate_size", "num_hash_layers"),
    *("engram_head_dim", "engram_n_heads", "engram_max_ngram_size"),
    *("dspark_markov_rank", "dspark_n_routed_experts", "dspark_num_experts_per_tok"),
)
"""Absent means a default; a value of another type would silently mean that default too."""
_LISTS: Final = ("compress_ratios", "kv_source_layer_ids", "index_source_layer_ids")
_NULLABLE: Final = {"deepseek_v3": ("q_lora_rank",)}

# (layers, hidden, heads, kv heads, intermediate) of the published distills
_QWEN_DISTILLS: Final = {
    (28, 1536, 12, 2, 8960): "1.5B",
    (28, 3584, 28, 4, 18944): "7B",
    (48, 5120, 40, 8, 13824): "14B",
    (64, 5120, 40, 8, 27648): "32B",
}
_LLAMA_DISTILLS: Final = {(32, 4096, 32, 8, 14336): "8B", (80, 8192, 64, 8, 28672): "70B"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    architecture: str
    """One of ARCHITECTURES, or `unknown`."""
    family: str
    title: str


def identify(config: ModelConfig, chat_template: str | None, findings: Collector, file: str) -> Identity:
    """Unknown models are named as unknown with what was read."""
    by_type = _BY_MODEL_TYPE.get(config.model_type)
    by_class = next((_BY_CLASS[name] for name in config.architectures if name in _BY_CLASS), None)
    if by_type and by_class and by_type != by_class:
        findings.warning(
            "config-architecture",
            file,
            f"model_type {config.model_type!r} and architectures {list(config.architectures)} name different models; "
            f"read as {by_class}",
        )
    architecture = by_class or by_type or "unknown"
    if architecture == "unknown":
        read = f"model_type {config.model_type!r}, architectures {list(config.architectures)}"
        findings.warning("family-unknown", file, f"no known family: {read}; only file integrity is checked")
        return Identity(architecture="unknown", family="unknown", title=f"unknown ({read})")
    family, title = _NAMERS.get(architecture, _plain)(config, chat_template or "", architecture)
    return Identity(architecture=architecture, family=family, title=title)


def missing_fields(config: ModelConfig, architecture: str, findings: Collector, file: str) -> list[str]:
    """Names of the fields that this architecture needs and the config lacks; each is an error finding."""
    needed, nullable = _NEEDED.get(architecture, ()), _NULLABLE.get(architecture, ())
    missing = []
    for name in (*needed, *(name for name in _OPTIONAL if name not in needed)):
        value = config.text.get(name)
        if value is None and (name not in needed or name in nullable):
            continue
        if name in _LISTS:
            wanted, is_good = "a list of whole numbers", isinstance(value, list) and all(map(_is_whole, value))
        elif name in needed:
            wanted, is_good = "a positive integer", _is_whole(value) and value != 0
        else:
            wanted, is_good = "a whole number", _is_whole(value)
        if not is_good:
            missing.append(name)
            found = "absent" if value is None else repr(value)[:60]
            findings.error("config-field", file, f"{name} is {found} where {architecture} needs {wanted}")
    given, layers = len(config.integers("compress_ratios")), config.num_hidden_layers
    if "compress_ratios" in needed and not missing and given < layers:
        missing.append("compress_ratios")
        findings.error("config-field", file, f"compress_ratios has {given} entries for {layers} layers")
    return missing


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**33


def _shape(config: ModelConfig) -> tuple[int, int, int, int, int]:
    return (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.integer("intermediate_size", 0),
    )


def _own_shape(config: ModelConfig) -> str:
    experts = f", {config.n_routed_experts} experts" if config.n_routed_experts else ""
    return f"own shape: {config.num_hidden_layers} layers, hidden {config.hidden_size}{experts}"


def _moe_16b(config: ModelConfig, _template: str, _architecture: str) -> tuple[str, str]:
    is_release = _shape(config)[:2] == (28, 2048)
    return "deepseek_moe", "DeepSeek-MoE-16B" if is_release else f"DeepSeek-MoE architecture ({_own_shape(config)})"


def _v2(config: ModelConfig, _template: str, _architecture: str) -> tuple[str, str]:
    if config.q_lora_rank is None:
        is_release = _shape(config)[:2] == (27, 2048)
        title = "DeepSeek-V2-Lite" if is_release else f"DeepSeek-V2-Lite architecture ({_own_shape(config)})"
        return "deepseek_v2_lite", title
    if _shape(config)[:2] == (60, 5120):
        return "deepseek_v2", "DeepSeek-V2 (V2.5 and Coder-V2 have the same shape)"
    return "deepseek_v2", f"DeepSeek-V2 architecture ({_own_shape(config)})"


def _v3(config: ModelConfig, template: str, _architecture: str) -> tuple[str, str]:
    is_release = _shape(config)[:2] == (61, 7168) and config.n_routed_experts == 256
    if is_release and config.quantization is not None and config.quantization.scale_fmt == "ue8m0":
        return "deepseek_v3_1", "DeepSeek-V3.1 (power-of-two scales)"
    if is_release and "<think>" in template:
        return "deepseek_r1", "DeepSeek-R1 (V3 architecture, chat template thinks)"
    if is_release:
        return "deepseek_v3", "DeepSeek-V3 or R1 (same architecture; nothing in the files tells them apart)"
    return "deepseek_v3", f"DeepSeek-V3 architecture ({_own_shape(config)})"


def _v32(config: ModelConfig, _template: str, _architecture: str) -> tuple[str, str]:
    is_release = _shape(config)[:2] == (61, 7168)
    return "deepseek_v3_2", "DeepSeek-V3.2" if is_release else f"DeepSeek-V3.2 architecture ({_own_shape(config)})"


def _v4(config: ModelConfig, _template: str, _architecture: str) -> tuple[str, str]:
    sizes = {4096: ("deepseek_v4_flash", "DeepSeek-V4-Flash"), 7168: ("deepseek_v4_pro", "DeepSeek-V4-Pro")}
    return sizes.get(config.hidden_size, ("deepseek_v4", f"DeepSeek-V4 architecture ({_own_shape(config)})"))


def _v41(config: ModelConfig, _template: str, _architecture: str) -> tuple[str, str]:
    if (config.num_hidden_layers, config.hidden_size) == (40, 5120):
        return "deepseek_v4_1_flash", "DeepSeek-V4.1-Flash"
    return "deepseek_v4_1", f"DeepSeek-V4.1 architecture ({_own_shape(config)})"


def _qwen2(config: ModelConfig, template: str, _architecture: str) -> tuple[str, str]:
    return _distill(config, template, _QWEN_DISTILLS, "qwen2", "Qwen2", "r1_distill_qwen", "DeepSeek-R1-Distill-Qwen")


def _llama(config: ModelConfig, template: str, _architecture: str) -> tuple[str, str]:
    return _distill(
        config, template, _LLAMA_DISTILLS, "llama", "Llama", "r1_distill_llama", "DeepSeek-R1-Distill-Llama"
    )


def _distill(
    config: ModelConfig,
    template: str,
    known: dict[tuple[int, int, int, int, int], str],
    base_family: str,
    base_title: str,
    family: str,
    title: str,
) -> tuple[str, str]:
    """A base model has the distill's shape too: only DeepSeek's tokens in the chat template prove a distill."""
    size = known.get(_shape(config))
    is_proven = "<｜User｜>" in template or "<think>" in template
    if size and is_proven:
        return family, f"{title}-{size} ({base_title} architecture, not DeepSeek-V3)"
    if size:
        return family, f"{base_title} architecture with the shape of {title}-{size}"
    if is_proven:
        return family, f"R1 distill on the {base_title} architecture ({_own_shape(config)})"
    return base_family, f"{base_title} architecture ({_own_shape(config)}), no DeepSeek model"


def _plain(config: ModelConfig, _template: str, architecture: str) -> tuple[str, str]:
    return architecture, f"{architecture} ({_own_shape(config)})"


_NAMERS: Final = {
    "deepseek_moe": _moe_16b,
    "deepseek_v2": _v2,
    "deepseek_v3": _v3,
    "deepseek_v32": _v32,
    "deepseek_v4": _v4,
    "deepseek_v41": _v41,
    "qwen2": _qwen2,
    "llama": _llama,
}
