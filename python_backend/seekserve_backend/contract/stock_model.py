"""Tensors of the stock C++ `tensorrt_llm` model, as its shipped config.pbtxt declares them.

The renderer writes that model's configuration from these tables and the BLS adapter speaks to it by them, so the two
cannot drift. Every tensor has a batch dimension in front (`max_batch_size` is at least 1): a scalar of one request is
sent as `[1, 1]`, token ids as `[1, length]`. Source: TensorRT-LLM,
triton_backend/all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt (the same from 1.2 to 1.3.0rc20).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STOCK_INPUTS", "STOCK_INPUT_BY_NAME", "STOCK_MODEL", "STOCK_OUTPUTS", "STOCK_OUTPUT_BY_NAME", "StockTensor"]

STOCK_MODEL = "tensorrt_llm"
"""The name that everybody gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StockTensor:
    name: str
    data_type: str
    """Triton's TYPE_ name without the prefix; with `set_by`, the type unless an engine was built otherwise."""
    dims: tuple[int, ...]
    """Without the batch dimension."""
    is_optional: bool = True
    is_ragged: bool = False
    """Requests of different length may share a batch."""
    is_reshaped: bool = False
    """Sent as `[1]`, handed to the backend as `[]`."""
    set_by: str = ""
    """What the type depends on: `logits_datatype`, `prompt_embedding_table_data_type`,
    `encoder_input_features_data_type`."""
    is_used: bool = False
    """Sent or read by our BLS adapter."""


def _scalars(data_type: str, *names: str, used: bool = False) -> tuple[StockTensor, ...]:
    return tuple(
        StockTensor(name=name, data_type=data_type, dims=(1,), is_reshaped=True, is_used=used) for name in names
    )


def _required(name: str) -> StockTensor:
    return StockTensor(name=name, data_type="INT32", dims=(1,), is_optional=False, is_reshaped=True, is_used=True)


def _ragged(name: str, data_type: str, dims: tuple[int, ...], *, set_by: str = "", used: bool = False) -> StockTensor:
    return StockTensor(name=name, data_type=data_type, dims=dims, is_ragged=True, set_by=set_by, is_used=used)


def _plain(name: str, data_type: str, dims: tuple[int, ...]) -> StockTensor:
    return StockTensor(name=name, data_type=data_type, dims=dims)


def _out(
    data_type: str, dims: tuple[int, ...], *names: str, set_by: str = "", used: bool = False
) -> tuple[StockTensor, ...]:
    return tuple(
        StockTensor(name=name, data_type=data_type, dims=dims, is_optional=False, set_by=set_by, is_used=used)
        for name in names
    )


STOCK_INPUTS: tuple[StockTensor, ...] = (
    _ragged("input_ids", "INT32", (-1,), used=True),
    _ragged("encoder_input_features", "FP16", (-1, -1), set_by="encoder_input_features_data_type"),
    *_scalars("INT32", "encoder_output_lengths"),
    _required("input_lengths"),
    _required("request_output_len"),
    *_scalars("INT32", "num_return_sequences"),
    _ragged("draft_input_ids", "INT32", (-1,)),
    _ragged("decoder_input_ids", "INT32", (-1,)),
    *_scalars("INT32", "decoder_input_lengths"),
    _ragged("draft_logits", "FP32", (-1, -1), set_by="logits_datatype"),
    *_scalars("FP32", "draft_acceptance_threshold"),
    *_scalars("INT32", "end_id", "pad_id", used=True),
    # [2, n]: token ids of all words one after the other, below them where each word ends, filled up with -1.
    _ragged("stop_words_list", "INT32", (2, -1), used=True),
    _ragged("bad_words_list", "INT32", (2, -1)),
    _ragged("embedding_bias", "FP32", (-1,)),
    *_scalars("INT32", "beam_width", used=True),
    *_scalars("FP32", "temperature", used=True),
    *_scalars("INT32", "runtime_top_k", used=True),
    *_scalars("FP32", "runtime_top_p", used=True),
    *_scalars("FP32", "runtime_top_p_min", "runtime_top_p_decay"),
    *_scalars("INT32", "runtime_top_p_reset_ids"),
    *_scalars("FP32", "len_penalty"),
    *_scalars("BOOL", "early_stopping"),
    *_scalars("FP32", "repetition_penalty", used=True),
    *_scalars("INT32", "min_tokens", used=True),
    *_scalars("FP32", "beam_search_diversity_rate"),
    *_scalars("FP32", "presence_penalty", "frequency_penalty", used=True),
    *_scalars("UINT64", "seed", used=True),
    *_scalars("BOOL", "return_log_probs", used=True),
    *_scalars("BOOL", "return_context_logits", "return_generation_logits"),
    *_scalars("BOOL", "return_perf_metrics", used=True),
    *_scalars("BOOL", "return_num_input_tokens", "return_num_output_tokens"),
    *_scalars("BOOL", "exclude_input_in_output", "stop", "streaming", used=True),
    _ragged("prompt_embedding_table", "FP16", (-1, -1), set_by="prompt_embedding_table_data_type"),
    _ragged("prompt_table_extra_ids", "UINT64", (-1,)),
    *_scalars("INT32", "prompt_vocab_size"),
    _ragged("cross_attention_mask", "BOOL", (-1, -1)),
    _plain("mrope_rotary_cos_sin", "FP32", (-1,)),
    _plain("mrope_position_deltas", "INT64", (1,)),
    *_scalars("UINT64", "lora_task_id"),
    _ragged("lora_weights", "FP16", (-1, -1)),
    _ragged("lora_config", "INT32", (-1, 3)),
    _ragged("context_phase_params", "UINT8", (-1,)),
    _ragged("skip_cross_attn_blocks", "BOOL", (1,)),
    _ragged("retention_token_range_starts", "INT32", (-1,), used=True),
    _ragged("retention_token_range_ends", "INT32", (-1,), used=True),
    _ragged("retention_token_range_priorities", "INT32", (-1,), used=True),
    _ragged("retention_token_range_durations_ms", "INT32", (-1,), used=True),
    _ragged("retention_decode_priority", "INT32", (1,), used=True),
    _ragged("retention_decode_duration_ms", "INT32", (1,)),
    _ragged("guided_decoding_guide_type", "STRING", (1,)),
    _ragged("guided_decoding_guide", "STRING", (1,)),
    _ragged("lookahead_window_size", "INT32", (1,)),
    _ragged("lookahead_ngram_size", "INT32", (1,)),
    _ragged("lookahead_verification_set_size", "INT32", (1,)),
)
STOCK_INPUT_BY_NAME = {tensor.name: tensor for tensor in STOCK_INPUTS}

STOCK_OUTPUTS: tuple[StockTensor, ...] = (
    # [beams, tokens]: while streaming with one beam, the tokens since the last response.
    *_out("INT32", (-1, -1), "output_ids", used=True),
    *_out("INT32", (-1,), "sequence_length", used=True),
    *_out("FP32", (-1,), "cum_log_probs", used=True),
    *_out("FP32", (-1, -1), "output_log_probs", used=True),
    *_out("FP32", (-1, -1), "context_logits", set_by="logits_datatype"),
    *_out("FP32", (-1, -1, -1), "generation_logits", set_by="logits_datatype"),
    *_out("INT32", (1,), "batch_index", "sequence_index"),
    *_out("UINT8", (-1,), "context_phase_params"),
    *_out("INT32", (1,), "kv_cache_alloc_new_blocks"),
    *_out("INT32", (1,), "kv_cache_reused_blocks", used=True),
    *_out("INT32", (1,), "kv_cache_alloc_total_blocks"),
    *_out("INT64", (1,), "arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns"),
    *_out("FP32", (1,), "acceptance_rate"),
    *_out("INT32", (1,), "total_accepted_draft_tokens", "total_draft_tokens", "num_input_tokens", "num_output_tokens"),
)
STOCK_OUTPUT_BY_NAME = {tensor.name: tensor for tensor in STOCK_OUTPUTS}
