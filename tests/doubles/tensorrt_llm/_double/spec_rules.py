"""Validators of speculative decoding and sparse attention, read in the snapshots A and B of llm_args.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .args_top import TorchLlmArgs
from .config import Values, rule
from .kinds import Refused

__all__: list[str] = []

Given = Mapping[str, Any]
_ = TorchLlmArgs  # the classes below are defined with it
_TORCH_REFUSES = ("Medusa", "Lookahead")
_TRT_TAKES = ("Medusa", "Lookahead", "Eagle")
_REJECTION = ("Eagle", "Eagle3", "MTP", "PARD", "DFlash", "DSpark", "Draft_Target")


@rule("DecodingBaseConfig")
def schedule(values: Values, at: str, given: Given) -> None:
    plan, top = values["draft_len_schedule"], values["max_draft_len"]
    if plan is None:
        return
    if any(batch < 1 or length < 0 for batch, length in plan.items()):
        raise Refused("draft_len_schedule maps batch sizes from 1 to lengths from 0")
    if at == "A" and 1 not in plan:
        raise Refused("draft_len_schedule has no entry for batch size 1")
    if not plan:
        raise Refused("draft_len_schedule is empty")
    if top is not None and (plan[min(plan)] != top or max(plan.values()) > top):
        raise Refused(f"draft_len_schedule does not begin with max_draft_len {top}")
    if at != "A" and given.get("max_concurrency") is not None:
        raise Refused("draft_len_schedule and max_concurrency exclude each other")


@rule(
    "EagleDecodingConfig",
    "Eagle3DecodingConfig",
    "NGramDecodingConfig",
    "DraftTargetDecodingConfig",
    "SADecodingConfig",
)
def draft_length(values: Values, at: str, given: Given) -> None:
    del at, given
    if not values["max_draft_len"]:
        raise Refused("max_draft_len must be above 0")


@rule("EagleDecodingConfig", "Eagle3DecodingConfig", "DraftTargetDecodingConfig")
def draft_model(values: Values, at: str, given: Given) -> None:
    del at, given
    if values["speculative_model"] is None:
        raise Refused("speculative_model is needed")


@rule("EagleDecodingConfig", "Eagle3DecodingConfig", "MTPDecodingConfig")
def trees(values: Values, at: str, given: Given) -> None:
    if not values.get("use_dynamic_tree"):
        return
    if values.get("eagle_choices") is not None:
        raise Refused("use_dynamic_tree excludes eagle_choices")
    width, depth, total = values["dynamic_tree_max_topK"], values["max_draft_len"], given.get("max_total_draft_tokens")
    if not width or width < 0 or not depth:
        raise Refused("use_dynamic_tree needs dynamic_tree_max_topK and max_draft_len")
    if at == "A":
        # the total is set to max_draft_len before it is looked at, so any length passes
        return
    if total is not None and not depth <= total <= width * depth:
        raise Refused(f"max_total_draft_tokens {total} is not from {depth} to {width * depth}")


@rule("MTPDecodingConfig")
def mtp_length(values: Values, at: str, given: Given) -> None:
    if at == "A":
        values["max_draft_len"] = values["num_nextn_predict_layers"]
    elif values["num_nextn_predict_layers"] is not None:
        if "max_draft_len" not in given:
            values["max_draft_len"] = values["num_nextn_predict_layers"]
        values["num_nextn_predict_layers"] = None
    if at != "A" and values["max_draft_len"] == 0:
        raise Refused("max_draft_len must be above 0 for MTP")
    values["max_total_draft_tokens"] = values["max_draft_len"]


@rule("SADecodingConfig")
def suffixes(values: Values, at: str, given: Given) -> None:
    del at, given
    size, pools = values["max_matching_ngram_size"], values["enable_global_pool"]
    if size == 0 or (pools and size != -1 and not 1 <= size <= 64):
        raise Refused(f"max_matching_ngram_size {size} is neither -1 nor in range")
    if values["global_pool_size"] is not None and not pools:
        raise Refused("global_pool_size needs enable_global_pool")


@rule("SaveHiddenStatesDecodingConfig")
def captured_layers(values: Values, at: str, given: Given) -> None:
    """An empty set is looked at only after the mark of the last state, which it lacks: it passes."""
    del values, at, given


@rule("DeepSeekSparseAttentionConfig", "DeepSeekV4SparseAttentionConfig")
def indexer(values: Values, at: str, given: Given) -> None:
    del given
    if at != "A" and values["indexer_k_dtype"] == "fp4" and values["index_head_dim"] not in (None, 128):
        raise Refused(f"indexer_k_dtype fp4 needs index_head_dim 128, not {values['index_head_dim']}")


@rule("MiniMaxM3SparseAttentionConfig")
def minimax(values: Values, at: str, given: Given) -> None:
    del at, given
    is_msa = values["implementation"] == "msa"
    if is_msa and values["sparse_block_size"] != 128:
        raise Refused("msa needs sparse_block_size 128")
    if values["indexer_kv_dtype"] == "fp8" and not (is_msa and values["sparse_disable_index_value"]):
        raise Refused("indexer_kv_dtype fp8 needs msa and sparse_disable_index_value")


@rule("TorchLlmArgs")
def torch_speculation(values: Values, at: str, given: Given) -> None:
    del given
    spec = values["speculative_config"]
    if spec is None:
        return
    kind = spec.decoding_type
    if kind in _TORCH_REFUSES:
        raise Refused(f"speculation type {kind} does not support the PyTorch backend")
    if kind in ("PARD", "DFlash") and not spec.max_draft_len:
        # a comparison of nothing with a number in the source, or an assertion
        raise Refused(f"{kind} needs max_draft_len above 0")
    if kind == "DSpark":
        _dspark(spec, values)
    if kind == "SA" and spec.global_pool_size is not None and spec.global_pool_size < values["max_batch_size"]:
        raise Refused(f"global_pool_size {spec.global_pool_size} is below max_batch_size {values['max_batch_size']}")
    if at != "A" and spec.use_rejection_sampling:
        _rejection(spec, kind, values)


def _dspark(spec: Any, values: Values) -> None:
    if not spec.max_draft_len:
        raise Refused("DSpark needs max_draft_len above 0")
    if spec.block_size is not None and spec.block_size != spec.max_draft_len:
        raise Refused(f"block_size {spec.block_size} is not max_draft_len {spec.max_draft_len}")
    if spec.speculative_model is None and not any(Path(values["model"]).glob("model.safetensors.index.json")):
        raise Refused("speculative_model is unset, and the target holds no draft weights")


def _rejection(spec: Any, kind: str, values: Values) -> None:
    """Whether FlashInfer is installed is not asked: no machine of the tests has it."""
    if kind not in _REJECTION or getattr(spec, "sa_config", None) is not None:
        raise Refused(f"use_rejection_sampling is not supported for {kind}")
    if (getattr(spec, "dynamic_tree_max_topK", None) or 0) > 32 and spec.use_dynamic_tree:
        raise Refused("use_rejection_sampling takes dynamic_tree_max_topK up to 32")
    newer = kind in ("PARD", "DFlash", "DSpark", "Draft_Target") or getattr(spec, "use_mtp_vanilla", False)
    relaxed = getattr(spec, "use_relaxed_acceptance_for_thinking", False)
    if newer and (relaxed or values["context_parallel_size"] > 1 or values["guided_decoding_backend"] is not None):
        raise Refused("use_rejection_sampling excludes relaxed acceptance, context parallelism and guided decoding")


@rule("TrtLlmArgs")
def engine_speculation(values: Values, at: str, given: Given) -> None:
    del at, given
    spec = values["speculative_config"]
    if spec is None:
        return
    if spec.decoding_type not in _TRT_TAKES:
        raise Refused(f"speculation type {spec.decoding_type} does not support the TensorRT backend")
    if spec.decoding_type == "Medusa" and not spec.max_draft_len:
        raise AssertionError("Medusa needs max_draft_len above 0")
