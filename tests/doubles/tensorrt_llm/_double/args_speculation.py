"""Speculative decoding, sparse attention and cache compression: unions told apart by one key.

Read in the snapshots A and B of llm_args.py.
"""

from __future__ import annotations

import ast

from .config import CLASSES, MISSING, Config, Field, config, define, remade
from .kinds import Kind, Refused, anything, boolean, either, has, list_of, map_of, number, opt, path, set_of, text, word

__all__ = ["BASE", "COMPRESSION", "COMPRESSION_BASE", "SPARSE", "SPARSE_BASE", "SPECULATION", "one_of"]

INT, FLOAT = number(), number(whole=False)
NATURAL, POSITIVE = number(low=0), number(low=1)
SHARE = number(whole=False, low=0, high=1)
SPECULATION: dict[str, str] = {}
SPARSE: dict[str, str] = {}
COMPRESSION: dict[str, str] = {}
Fields = dict[str, Field]


def _concurrency(value: object, at: str) -> object:
    return opt(NATURAL if at == "A" else POSITIVE)(value, at)


def _draft_window(value: object, at: str) -> object:
    return (INT if at == "A" else POSITIVE)(value, at)


def _delta(value: object, at: str) -> object:
    return (FLOAT if at == "A" else number(whole=False, low=0))(value, at)


def _marker(value: object, at: str) -> object:
    return (INT if at == "A" else NATURAL)(value, at)


BASE = define(
    "DecodingBaseConfig",
    fields={
        "max_draft_len": Field(opt(NATURAL)),
        "max_total_draft_tokens": Field(opt(INT)),
        "speculative_model": Field(opt(path), alias="speculative_model_dir"),
        "max_concurrency": Field(_concurrency),
        "draft_len_schedule": Field(opt(map_of(INT, INT))),
        "load_format": Field(opt(text)),
        "acceptance_window": Field(opt(NATURAL), at="A"),
        "acceptance_length_threshold": Field(opt(number(whole=False, low=0)), at="A"),
        "acceptance_rate_window_size": Field(opt(NATURAL), at="B"),
        "acceptance_rate_threshold": Field(opt(SHARE), at="B"),
        "use_rejection_sampling": Field(boolean, False, "B"),
        "allow_advanced_sampling": Field(boolean, False),
        "advanced_sampling_mode": Field(
            word(dict.fromkeys(("full", "no_topk", "no_topp", "no_topk_no_topp"), "B")), "full", "B"
        ),
        "enable_penalty": Field(boolean, False, "B"),
    },
)
SPARSE_BASE = define("BaseSparseAttentionConfig", fields={})
_THRESHOLD = {"seq_len_threshold": Field(opt(INT))}
COMPRESSION_BASE = define("KvCacheCompressionConfig", fields={})
define(
    "SAEnhancerConfig",
    fields={"threshold": Field(POSITIVE, 4, "B"), "enable_global_pool": Field(boolean, False, "B")},
)
_SA = {"sa_config": Field(opt(config("SAEnhancerConfig")), at="B")}


def _choices(value: object, at: str) -> object:
    """Also as the text of such a list."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            raise Refused(f"{value!r} is no list of lists") from None
    return list_of(list_of(INT))(value, at)


_EAGLE = {
    "eagle_choices": Field(opt(_choices)),
    "greedy_sampling": Field(opt(boolean), True),
    "posterior_threshold": Field(opt(FLOAT)),
    "use_dynamic_tree": Field(opt(boolean), False),
    "dynamic_tree_max_topK": Field(opt(INT)),
    "num_eagle_layers": Field(opt(INT)),
    "max_non_leaves_per_layer": Field(opt(INT)),
    "eagle3_one_model": Field(opt(boolean), True),
    "eagle3_layers_to_capture": Field(opt(set_of(INT))),
    "eagle3_model_arch": Field(word(("llama3", "mistral_large3")), "llama3"),
}


def one_of(key: str, members: dict[str, str], base: type[Config]) -> Kind:
    """A union's field: an object of a member, or a mapping with `key`."""

    def check(value: object, at: str) -> object:
        if isinstance(value, base):
            return remade(type(value), value._given, at)
        if not isinstance(value, dict):
            raise Refused(f"{value!r} is no mapping")
        given = value.get(key)
        name = members.get(given) if isinstance(given, str) else None
        if name is None or not has(CLASSES[name].FIELDS[key].at, at):
            raise Refused(f"{key} {given!r} is not one of {', '.join(members)}")
        return remade(CLASSES[name], value, at)

    return check


def _member(into: dict[str, str], base: type[Config], key: str, value: str, name: str, fields: Fields, at: str) -> None:
    both = {**base.FIELDS, **fields}
    limited = {
        each: Field(f.kind, f.default, "".join(letter for letter in f.at if letter in at), f.changed, f.alias)
        for each, f in both.items()
    }
    define(name, base=base, fields={key: Field(word({value: at}), value, at), **limited})
    into[value] = name


def _speculation(value: str, name: str, fields: Fields | None = None, at: str = "AB") -> None:
    _member(SPECULATION, BASE, "decoding_type", value, name, fields or {}, at)


def _sparse(value: str, name: str, fields: Fields, at: str = "AB") -> None:
    _member(SPARSE, SPARSE_BASE, "algorithm", value, name, fields, at)


_speculation(
    "MTP",
    "MTPDecodingConfig",
    {
        "num_nextn_predict_layers": Field(
            lambda value, at: (POSITIVE if at == "A" else opt(NATURAL))(value, at), 1, changed=None
        ),
        "use_relaxed_acceptance_for_thinking": Field(boolean, False),
        "relaxed_topk": Field(_draft_window, 1),
        "relaxed_delta": Field(_delta, 0.0),
        "use_mtp_vanilla": Field(boolean, False),
        "mtp_eagle_one_model": Field(boolean, True),
        "use_dynamic_tree": Field(boolean, False, "B"),
        "dynamic_tree_max_topK": Field(opt(INT), at="B"),
        **_SA,
        "num_nextn_predict_layers_from_model_config": Field(INT, 1, "A"),
        "begin_thinking_phase_token": Field(_marker, 128798),
        "end_thinking_phase_token": Field(_marker, 128799),
    },
)
_speculation("Eagle", "EagleDecodingConfig", _EAGLE)
_speculation("Eagle3", "Eagle3DecodingConfig", {**_EAGLE, **_SA})
_speculation(
    "Medusa",
    "MedusaDecodingConfig",
    {"medusa_choices": Field(opt(list_of(list_of(INT)))), "num_medusa_heads": Field(opt(INT))},
    "A",
)
_speculation(
    "Lookahead",
    "LookaheadDecodingConfig",
    {
        "max_window_size": Field(POSITIVE, 4),
        "max_ngram_size": Field(POSITIVE, 3),
        "max_verification_set_size": Field(POSITIVE, 4),
    },
    "A",
)
_speculation(
    "NGram",
    "NGramDecodingConfig",
    {
        "max_matching_ngram_size": Field(POSITIVE, 2),
        "is_keep_all": Field(boolean, True),
        "is_use_oldest": Field(boolean, True),
        "is_public_pool": Field(boolean, True),
    },
)
_speculation(
    "SA",
    "SADecodingConfig",
    {
        "max_matching_ngram_size": Field(INT, -1),
        "enable_global_pool": Field(boolean, False),
        "global_pool_size": Field(opt(POSITIVE)),
    },
    "B",
)
_speculation("Draft_Target", "DraftTargetDecodingConfig")
_speculation(
    "SaveState",
    "SaveHiddenStatesDecodingConfig",
    {
        "output_directory": Field(text, MISSING),
        "write_interval": Field(INT, 20),
        "file_prefix": Field(text, "data"),
        "eagle3_layers_to_capture": Field(opt(set_of(INT))),
        "max_total_draft_tokens": Field(opt(INT), 1),
        "eagle_choices": Field(opt(list_of(list_of(INT)))),
    },
)
_speculation(
    "User_Provided",
    "UserProvidedDecodingConfig",
    {"drafter": Field(anything, MISSING), "resource_manager": Field(anything)},
)
_speculation("PARD", "PARDDecodingConfig", {"mask_token_id": Field(opt(INT)), **_SA})
_DRAFT_ATTENTION = Field(word({"VANILLA": "B", "TRTLLM": "B"}), "VANILLA")
_speculation(
    "DFlash",
    "DFlashDecodingConfig",
    {
        "mask_token_id": Field(opt(INT)),
        "target_layer_ids": Field(opt(list_of(INT))),
        "attention_backend": _DRAFT_ATTENTION,
    },
    "B",
)
_speculation(
    "DSpark",
    "DSparkDecodingConfig",
    {
        "mask_token_id": Field(opt(INT)),
        "target_layer_ids": Field(opt(list_of(INT))),
        "block_size": Field(opt(POSITIVE)),
        "markov_rank": Field(opt(INT)),
        "markov_head_type": Field(opt(word(dict.fromkeys(("vanilla", "gated", "rnn"), "B")))),
        "attention_backend": _DRAFT_ATTENTION,
    },
    "B",
)
_speculation("AUTO", "AutoDecodingConfig")

_sparse(
    "rocket",
    "RocketSparseAttentionConfig",
    {
        **_THRESHOLD,
        "window_size": Field(opt(INT), 32),
        "kernel_size": Field(opt(INT), 63),
        "topr": Field(opt(FLOAT), 128),
        "topk": Field(opt(INT), 64),
        "prompt_budget": Field(opt(INT), 2048),
        "page_size": Field(opt(INT), 4),
        "kt_cache_dtype": Field(opt(text), "float8_e5m2"),
    },
)
_DSA = {
    **_THRESHOLD,
    "index_n_heads": Field(opt(INT)),
    "index_head_dim": Field(opt(INT)),
    "index_topk": Field(opt(INT)),
    "indexer_max_chunk_size": Field(opt(INT)),
    "skip_indexer_for_short_seqs": Field(boolean, True),
    "use_cute_dsl_topk": Field(boolean, False, "B"),
    "use_cute_dsl_paged_mqa_logits": Field(boolean, False, "B"),
    "q_split_threshold": Field(INT, 8192, "B"),
    "indexer_rope_interleave": Field(boolean, False, "B"),
    "enable_heuristic_topk": Field(boolean, False, "B"),
    "use_self_sampling_topk": Field(boolean, True, "B"),
    "use_gvr_emission": Field(boolean, False, "B"),
    "indexer_k_dtype": Field(word({"fp8": "B", "fp4": "B"}), "fp8", "B"),
    "index_share_for_mtp_iteration": Field(opt(boolean), at="B"),
}
_sparse("dsa", "DeepSeekSparseAttentionConfig", _DSA)
_sparse(
    "deepseek_v4",
    "DeepSeekV4SparseAttentionConfig",
    {
        **_DSA,
        "index_head_dim": Field(INT, 128),
        "index_topk": Field(opt(INT), 512),
        "skip_indexer_for_short_seqs": Field(boolean, False),
        "indexer_k_dtype": Field(word({"fp8": "B", "fp4": "B"}), "fp4"),
        "compress_ratios": Field(list_of(NATURAL, least=1), lambda: [1, 1, 4, 128, 4, 128, 4]),
        "window_size": Field(INT, 128),
    },
    "B",
)
_sparse(
    "skip_softmax",
    "SkipSoftmaxAttentionConfig",
    {
        "seq_len_threshold": Field(opt(INT), at="A"),
        "threshold_scale_factor": Field(opt(either(FLOAT, map_of(text, FLOAT)))),
        "target_sparsity": Field(opt(either(SHARE, map_of(text, SHARE))), at="B"),
    },
)
_sparse("qsa", "QSASparseAttentionConfig", {"seq_len_threshold": Field(opt(POSITIVE))}, "B")
_sparse(
    "minimax_m3",
    "MiniMaxM3SparseAttentionConfig",
    {
        "sparse_num_index_heads": Field(POSITIVE, 4),
        "sparse_index_dim": Field(POSITIVE, 128),
        "sparse_block_size": Field(INT, 128),
        "sparse_topk_blocks": Field(INT, 16),
        "sparse_init_blocks": Field(INT, 0),
        "sparse_local_blocks": Field(INT, 1),
        "sparse_score_type": Field(word({"max": "B"}), "max"),
        "sparse_disable_index_value": Field(boolean, True),
        "indexer_kv_dtype": Field(word({"bf16": "B", "fp8": "B"}), "bf16"),
        "num_attention_heads": Field(opt(INT)),
        "num_key_value_heads": Field(opt(INT)),
        "implementation": Field(word({"triton": "B", "msa": "B"}), "triton"),
    },
    "B",
)
_member(
    COMPRESSION,
    COMPRESSION_BASE,
    "algorithm",
    "quantization_for_cold_page",
    "ColdPageQuantizationCompressionConfig",
    {"quant": Field(word({"nvfp4": "B"}), "nvfp4"), "scale_checkpoint_path": Field(opt(text))},
    "B",
)
_member(
    COMPRESSION,
    COMPRESSION_BASE,
    "algorithm",
    "triattention",
    "TriAttentionKvCacheCompressionConfig",
    {
        "eviction_mode": Field(word(dict.fromkeys(("union", "per_head", "per_layer_perhead"), "B")), "union"),
        "normalize_scores": Field(boolean, True),
        "budget": Field(POSITIVE, 2048),
        "beta": Field(POSITIVE, 128),
        "calibration_path": Field(text, MISSING),
    },
    "B",
)
