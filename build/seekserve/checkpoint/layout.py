"""Fills the name tables for one config: which tensors must be there, of what shape, in which layers.

A layout is a list of blocks (prefix with holes, layers, experts, rows), so counting parameters multiplies and only
checking a checkpoint spells the names out. MTP layers are derived from num_hidden_layers and num_nextn_predict_layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from . import names, names_v4
from .config import ModelConfig
from .names import Row

__all__ = [
    "LATENT",
    "MAX_TENSORS",
    "Block",
    "Expected",
    "canonical_name",
    "expected_tensors",
    "layout",
    "mtp_layer_of",
    "renamed_starts",
]

MAX_TENSORS: Final = 500_000
"""Five times the largest release; a config beyond it is a typing mistake or an attack, and is not spelt out."""

LATENT: Final = ("deepseek_v2", "deepseek_v3", "deepseek_v32")
"""Architectures whose cache holds one latent row per token and layer."""
_OWN_NAMES: Final = ("deepseek_v4", "deepseek_v41")
"""Families released under DeepSeek's own tensor names."""


class Expected(NamedTuple):
    """What one tensor should be; shared by all tensors of a row in a block."""

    row: Row
    shape: tuple[int, ...]
    is_mtp: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    prefix: str
    """`{layer}` and `{expert}` are the holes."""
    rows: tuple[Expected, ...]
    layers: tuple[int, ...] = (0,)
    experts: int = 1
    active_experts: int = 1
    is_mtp: bool = False

    @property
    def tensor_count(self) -> int:
        return len(self.layers) * self.experts * len(self.rows)

    def tensors(self) -> Iterator[tuple[str, Expected]]:
        rows = [(expected.row.name, expected) for expected in self.rows]
        for layer in self.layers:
            at_layer = self.prefix.replace("{layer}", str(layer))
            for expert in range(self.experts):
                start = at_layer.replace("{expert}", str(expert))
                for name, expected in rows:
                    yield start + name, expected


def expected_tensors(blocks: Iterable[Block]) -> dict[str, Expected]:
    return {name: expected for block in blocks for name, expected in block.tensors()}


def layout(config: ModelConfig, architecture: str) -> tuple[Block, ...]:
    """Empty for an unknown architecture. The fields it needs must be there (`families.missing_fields`)."""
    if architecture == "unknown":
        return ()
    build = _Builder(config, dimensions(config))
    if architecture == "deepseek_v4":
        return _v4(config, build)
    if architecture == "deepseek_v41":
        return _v41(config, build)
    return _classic(config, architecture, build)


class _Builder:
    def __init__(self, config: ModelConfig, dims: Mapping[str, int]) -> None:
        self.config, self.dims = config, dims

    def __call__(
        self,
        prefix: str,
        *tables: tuple[Row, ...],
        layers: Iterable[int] = (0,),
        experts: int = 1,
        active: int = 1,
        mtp: bool = False,
        dims: Mapping[str, int] | None = None,
    ) -> Block:
        all_dims = {**self.dims, **(dims or {})}
        rows = tuple(
            Expected(row, tuple(d if isinstance(d, int) else all_dims[d] for d in row.shape), mtp)
            for table in tables
            for row in table
        )
        return Block(prefix=prefix, rows=rows, layers=tuple(layers), experts=experts, active_experts=active, is_mtp=mtp)


def dimensions(config: ModelConfig) -> dict[str, int]:
    """Every dimension that a table may name; those of other families are 0 and never used."""
    get = config.integer
    heads, hidden, head_dim = config.num_attention_heads, config.hidden_size, config.head_dim
    nope, rope, v_dim = get("qk_nope_head_dim", 0), get("qk_rope_head_dim", 0), get("v_head_dim", 0)
    kv_rank, moe = config.kv_lora_rank or 0, get("moe_intermediate_size", 0)
    groups, hc = get("o_groups", 1), get("hc_mult", 0)
    return {
        "vocab": config.vocab_size,
        "hidden": hidden,
        "hidden_twice": 2 * hidden,
        "heads": heads,
        "head_dim": head_dim,
        "head_dim_twice": 2 * head_dim,
        "q_heads_dim": heads * head_dim,
        "kv_heads_dim": config.num_key_value_heads * head_dim,
        "q_rank": config.q_lora_rank or 0,
        "kv_rank": kv_rank,
        "latent_dim": kv_rank + rope,
        "qk_heads_dim": heads * (nope + rope),
        "kv_up_dim": heads * (nope + v_dim),
        "v_heads_dim": heads * v_dim,
        "index_heads": get("index_n_heads", 0),
        "index_dim": get("index_head_dim", 0),
        "index_dim_twice": 2 * get("index_head_dim", 0),
        "index_heads_dim": get("index_n_heads", 0) * get("index_head_dim", 0),
        "intermediate": get("intermediate_size", 0),
        "moe_intermediate": moe,
        "shared_intermediate": moe * get("n_shared_experts", 0),
        "experts": config.n_routed_experts,
        "active_experts": config.num_experts_per_tok,
        "o_groups_rank": groups * get("o_lora_rank", 0),
        "o_group_in": heads * head_dim // max(groups, 1),
        "hc": hc,
        "hc_hidden": hc * hidden,
        "hc_mix": hc * (hc + 2),
        "engram_dim": get("engram_head_dim", 0),
        "engram_in": (get("engram_max_ngram_size", 1) - 1) * get("engram_n_heads", 0) * get("engram_head_dim", 0),
        "engram_out": hidden * (hc + 1),
        "draft_in": hidden * len(config.integers("dspark_target_layer_ids")),
        "markov_rank": get("dspark_markov_rank", 0),
        "confidence_in": hidden + get("dspark_markov_rank", 0),
    }


def _classic(config: ModelConfig, architecture: str, build: _Builder) -> tuple[Block, ...]:
    """MoE-16B, V2, V2-Lite, V3, V3.1, R1, V3.2, Qwen2 and Llama."""
    main = range(config.num_hidden_layers)
    mtp = range(config.num_hidden_layers, config.num_hidden_layers + config.num_nextn_predict_layers)
    attention = _attention_tables(config, architecture)
    dense_layers = [layer for layer in main if not _is_moe(config, layer)]
    moe_layers = [layer for layer in main if _is_moe(config, layer)]
    dense = (names.DENSE_MLP, names.DENSE_MLP_BIAS) if config.text.get("mlp_bias") is True else (names.DENSE_MLP,)
    router = (names.ROUTER, names.ROUTER_BIAS) if _has_router_bias(config, architecture) else (names.ROUTER,)
    shared = (names.SHARED_EXPERTS,) if config.integer("n_shared_experts", 0) else ()
    at, at_expert = "model.layers.{layer}.", "model.layers.{layer}.mlp.experts.{expert}."
    count, active = config.n_routed_experts, config.num_experts_per_tok
    blocks = [
        build("", names.TOP, *(() if config.tie_word_embeddings else (names.HEAD,))),
        build(at, names.LAYER_NORMS, *attention, layers=main),
        build(at, *dense, layers=dense_layers),
        build(at, *router, *shared, layers=moe_layers),
        build(at_expert, names.EXPERT, layers=moe_layers, experts=count, active=active),
    ]
    if mtp and config.n_routed_experts:
        blocks += [
            build(at, names.LAYER_NORMS, *attention, *router, *shared, names.MTP_EXTRAS, layers=mtp, mtp=True),
            build(at_expert, names.EXPERT, layers=mtp, experts=count, active=active, mtp=True),
        ]
    return tuple(block for block in blocks if block.layers)


def _attention_tables(config: ModelConfig, architecture: str) -> tuple[tuple[Row, ...], ...]:
    if architecture not in LATENT:
        qkv_bias = architecture == "qwen2" or config.attention_bias
        out_bias = architecture != "qwen2" and config.attention_bias
        return (names.GQA, *((names.GQA_QKV_BIAS,) if qkv_bias else ()), *((names.GQA_OUT_BIAS,) if out_bias else ()))
    low_rank = config.q_lora_rank is not None
    tables = [names.MLA_LATENT, names.MLA_LOW_RANK_QUERY if low_rank else names.MLA_PLAIN_QUERY]
    if config.attention_bias:
        tables += [names.MLA_BIAS, *((names.MLA_QUERY_BIAS,) if low_rank else ())]
    if architecture == "deepseek_v32":
        tables.append(names.INDEXER)
    return tuple(tables)


def _is_moe(config: ModelConfig, layer: int) -> bool:
    if not config.n_routed_experts:
        return False
    return (
        layer >= config.integer("first_k_dense_replace", 0) and layer % max(config.integer("moe_layer_freq", 1), 1) == 0
    )


def _has_router_bias(config: ModelConfig, architecture: str) -> bool:
    method = config.text.get("topk_method")
    return method == "noaux_tc" or (method is None and architecture in ("deepseek_v3", "deepseek_v32"))


def _v4(config: ModelConfig, build: _Builder) -> tuple[Block, ...]:
    main, at = range(config.num_hidden_layers), "layers.{layer}."
    ratios = config.integers("compress_ratios")[: config.num_hidden_layers]
    hashed = main[: config.integer("num_hash_layers", 0)]
    common = (names_v4.LAYER_NORMS, names_v4.HYPER, names_v4.ATTENTION, names_v4.ROUTER, names_v4.SHARED_EXPERTS)
    count, active = config.n_routed_experts, config.num_experts_per_tok
    blocks = [
        build("", names_v4.TOP, names_v4.HYPER_HEAD),
        build(at, *common, layers=main),
        build(at, names_v4.SPARSE, layers=[layer for layer in main if ratios[layer] == 4]),
        build(at, names_v4.HEAVY, layers=[layer for layer in main if ratios[layer] == 128]),
        build(at, names_v4.ROUTER_HASH, layers=hashed),
        build(at, names_v4.ROUTER_BIAS, layers=[layer for layer in main if layer not in hashed]),
        build(at + "ffn.experts.{expert}.", names_v4.EXPERT, layers=main, experts=count, active=active),
    ]
    # a DSpark build replaces the MTP layers by draft layers whose names no source confirms
    mtp = () if config.has("dspark_block_size") else range(config.num_nextn_predict_layers)
    if mtp:
        at = "mtp.{layer}."
        blocks += [
            build(at, *common, names_v4.ROUTER_BIAS, names_v4.MTP_EXTRAS, layers=mtp, mtp=True),
            build(at + "ffn.experts.{expert}.", names_v4.EXPERT, layers=mtp, experts=count, active=active, mtp=True),
        ]
    return tuple(block for block in blocks if block.layers)


def _v41(config: ModelConfig, build: _Builder) -> tuple[Block, ...]:
    main, at = range(config.num_hidden_layers), "layers.{layer}."
    ratios = config.integers("compress_ratios")
    sources = [layer for layer in config.integers("kv_source_layer_ids") if layer < len(ratios)]
    common = (names_v4.LAYER_NORMS, names_v4.HYPER, names_v4.ATTENTION, names_v4.ROUTER_V41, names_v4.SHARED_EXPERTS)
    count, active = config.n_routed_experts, config.num_experts_per_tok
    blocks = [
        build("", names_v4.TOP),
        build(at, *common, layers=main),
        build(at, names_v4.INDEXER_QUERY, layers=config.integers("index_source_layer_ids")),
        build(at, names_v4.COMPRESSOR_V41, layers=sources),
        build(at, names_v4.COMPRESSOR_GATE_V41, layers=[layer for layer in sources if ratios[layer] > 1]),
        build(at + "ffn.experts.{expert}.", names_v4.EXPERT, layers=main, experts=count, active=active),
    ]
    for layer, rows in zip(config.integers("engram_layer_ids"), config.integers("engram_num_embeddings"), strict=False):
        tables = (names_v4.ENGRAM_MIX, names_v4.ENGRAM_TABLE)
        blocks.append(build(at, *tables, layers=(layer,), dims={"engram_rows": rows}))
    blocks += _draft_blocks(config, build, common)
    vision = config.outer.get("vision_config")
    if isinstance(vision, dict):
        blocks += _vision_blocks(vision, build)
    return tuple(block for block in blocks if block.layers)


def _draft_blocks(config: ModelConfig, build: _Builder, common: tuple[tuple[Row, ...], ...]) -> list[Block]:
    layers = range(config.num_nextn_predict_layers)
    if not layers:
        return []
    experts = config.integer("dspark_n_routed_experts", config.n_routed_experts)
    active = config.integer("dspark_num_experts_per_tok", config.num_experts_per_tok)
    at, dims = "mtp.{layer}.", {"experts": experts}
    return [
        build(at, *common, layers=layers, mtp=True, dims=dims),
        build(at + "ffn.experts.{expert}.", names_v4.EXPERT, layers=layers, experts=experts, active=active, mtp=True),
        build(at, names_v4.DRAFT_ENTRY, layers=layers[:1], mtp=True),
        build(at, names_v4.DRAFT_EXIT, layers=layers[-1:], mtp=True),
    ]


def _vision_blocks(vision: Mapping[str, object], build: _Builder) -> list[Block]:
    fields = ("hidden_size", "intermediate_size", "patch_size", "downsample_ratio", "num_hidden_layers")
    values = [vision.get(field) for field in fields]
    if not all(type(v) is int and 0 < v < 2**20 for v in values):
        return []
    hidden, intermediate, patch, ratio, layers = (int(str(v)) for v in values)
    dims = {
        "v_hidden": hidden,
        "v_patch": 3 * patch * patch,
        "v_qkv": 3 * hidden,
        "v_intermediate": intermediate,
        "v_gated": 2 * intermediate,
        "v_unshuffled": hidden * ratio**2,
    }
    return [
        build("", names_v4.IMAGE_TOKENS, names_v4.VISION_TOP, dims=dims),
        build("vision.blocks.{layer}.", names_v4.VISION_BLOCK, layers=range(layers), dims=dims),
    ]


def renamed_starts(architecture: str) -> tuple[str, ...]:
    """Beginnings of stored names that are not spelt as this family spells them."""
    return ("model.",) if architecture in _OWN_NAMES else ("layers.", "embed_tokens.", "norm.")


def canonical_name(name: str, architecture: str) -> str:
    """One spelling for all after the reader: with `model.` for the Hugging Face families, without for V4's own."""
    if not name.startswith(renamed_starts(architecture)):
        return name
    return name.removeprefix("model.") if architecture in _OWN_NAMES else f"model.{name}"


def mtp_layer_of(name: str, config: ModelConfig, architecture: str) -> int | None:
    """Number of the MTP layer (from 0) that a canonical name belongs to, announced by the config or not."""
    first, _, rest = name.partition(".")
    if architecture in _OWN_NAMES:
        number = rest.partition(".")[0]
        return int(number) if first == "mtp" and number.isdecimal() else None
    if first != "model" or not rest.startswith("layers."):
        return None
    number = rest[len("layers.") :].partition(".")[0]
    if not number.isdecimal() or int(number) < config.num_hidden_layers:
        return None
    return int(number) - config.num_hidden_layers
