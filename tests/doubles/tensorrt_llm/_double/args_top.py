"""Fields of TorchLlmArgs and TrtLlmArgs, read in the snapshots A and B of llm_args.py."""

from __future__ import annotations

import enum

from . import args_cache, args_engine, args_nested, args_new, args_speculation
from .args_speculation import COMPRESSION, COMPRESSION_BASE, SPARSE, SPARSE_BASE, SPECULATION, one_of
from .behaviour import BEHAVIOUR
from .config import CLASSES, MISSING, Config, Field, define
from .config import config as nested
from .kinds import Refused, anything, boolean, has, list_of, map_of, number, opt, path, text, word

__all__ = ["BatchingType", "LoadFormat", "SamplerType", "TorchLlmArgs", "TrtLlmArgs", "gpus_on_node"]

INT = number()
NATURAL, POSITIVE = number(low=0), number(low=1)
NEEDED_BY_NAME = (args_cache, args_engine, args_nested, args_new, args_speculation)
_ENCODER_KEYS = ("num_tokens", "max_num_token", "seq_lens", "max_seq_len")


class SamplerType(str, enum.Enum):
    TRTLLMSampler = "TRTLLMSampler"
    TorchSampler = "TorchSampler"
    auto = "auto"


class LoadFormat(enum.Enum):
    AUTO = 0
    DUMMY = 1
    VISION_ONLY = 2
    GMS = 3


class BatchingType(str, enum.Enum):
    STATIC = "STATIC"
    INFLIGHT = "INFLIGHT"


def _graphs(value: object, at: str) -> object:
    """Since B decoding and encoding graphs are two classes; the keys tell which."""
    if value is None:
        return None
    encodes = isinstance(value, dict) and (
        value.get("mode") == "encode"
        or ("mode" not in value and any(value.get(key) not in (None, 0) for key in _ENCODER_KEYS))
    )
    name = "EncodeCudaGraphConfig" if at != "A" and encodes else "CudaGraphConfig"
    return nested(name)(value, at)


def _sampler(value: object, at: str) -> object:
    """Any text in A. Since B the argument is gone, and what means the only sampler is ignored."""
    if at == "A" or value in ("auto", "TorchSampler"):
        return text(value, at)
    raise Refused(f"sampler_type {value!r} was removed")


def _iterations(value: object, at: str) -> object:
    return opt(INT if at == "A" else number(low=-1))(value, at)


def _stats_length(value: object, at: str) -> object:
    return (INT if at == "A" else number(low=-1))(value, at)


def _multimodal(value: object, at: str) -> object:
    return nested("MultimodalConfig")({} if value is None else value, at)


def _tokenizer(value: object, at: str) -> object:
    """A path, or an object that encodes and decodes."""
    if value is None or all(hasattr(value, name) for name in ("encode", "decode", "eos_token_id")):
        return value
    return path(value, at)


def _build_cache(value: object, at: str) -> object:
    """A plain class, so an object of it and no mapping."""
    return value if isinstance(value, CLASSES["BuildCacheConfig"]) else boolean(value, at)


def _fresh(name: str, at: str = "AB") -> Field:
    """A nested object with its own defaults where nothing is given."""
    return Field(nested(name), dict, at)


COMMON = {
    "model": Field(path, MISSING),
    "tokenizer": Field(_tokenizer),
    "tokenizer_mode": Field(word(("auto", "slow")), "auto"),
    "custom_tokenizer": Field(opt(text)),
    "post_processor_hook": Field(opt(text), at="B"),
    "skip_tokenizer_init": Field(boolean, False),
    "trust_remote_code": Field(boolean, False),
    "tensor_parallel_size": Field(INT, 1),
    "dtype": Field(text, "auto"),
    "revision": Field(opt(text)),
    "tokenizer_revision": Field(opt(text)),
    "model_kwargs": Field(opt(map_of(text, anything))),
    "pipeline_parallel_size": Field(INT, 1),
    "context_parallel_size": Field(INT, 1),
    "gpus_per_node": Field(opt(INT)),
    "moe_cluster_parallel_size": Field(opt(INT)),
    "moe_tensor_parallel_size": Field(opt(INT)),
    "moe_expert_parallel_size": Field(opt(INT)),
    "enable_attention_dp": Field(boolean, False),
    "enable_lm_head_tp_in_adp": Field(boolean, False),
    "pp_partition": Field(opt(list_of(INT))),
    "cp_config": Field(opt(nested("CpConfig"))),
    "enable_lora": Field(boolean, False),
    "lora_config": Field(opt(nested("LoraConfig"))),
    "kv_cache_config": _fresh("KvCacheConfig"),
    "enable_chunked_prefill": Field(boolean, False),
    "guided_decoding_backend": Field(opt(word(("xgrammar", "llguidance")))),
    "batched_logits_processor": Field(anything),
    "iter_stats_max_iterations": Field(_iterations),
    "request_stats_max_iterations": Field(_iterations),
    "peft_cache_config": Field(opt(nested("PeftCacheConfig"))),
    "scheduler_config": _fresh("SchedulerConfig"),
    "cache_transceiver_config": Field(opt(nested("CacheTransceiverConfig"))),
    "sparse_attention_config": Field(opt(one_of("algorithm", SPARSE, SPARSE_BASE))),
    "kv_cache_compression_config": Field(opt(one_of("algorithm", COMPRESSION, COMPRESSION_BASE)), at="B"),
    "speculative_config": Field(opt(one_of("decoding_type", SPECULATION, args_speculation.BASE))),
    "max_batch_size": Field(opt(INT), 2048),
    "max_input_len": Field(opt(INT), 1024),
    "max_seq_len": Field(opt(INT)),
    "max_beam_width": Field(opt(INT), 1),
    "max_num_tokens": Field(opt(INT), 8192),
    "gather_generation_logits": Field(boolean, False),
    "num_postprocess_workers": Field(INT, 0),
    "postprocess_tokenizer_dir": Field(opt(text)),
    "num_serve_frontends": Field(number(low=1, high=64), 1, "B"),
    "reasoning_parser": Field(opt(text)),
    "decoding_config": Field(anything),
    "otlp_traces_endpoint": Field(opt(text)),
    "return_perf_metrics": Field(boolean, False),
    "perf_metrics_output_dir": Field(opt(text), at="B"),
    "perf_metrics_max_requests": Field(NATURAL, 0),
    "prometheus_metrics_config": Field(opt(nested("PrometheusMetricsConfig")), at="B"),
    "enable_energy_metrics": Field(boolean, False, "B"),
    "orchestrator_type": Field(opt(word(("rpc", "ray")))),
    "env_overrides": Field(opt(map_of(anything, anything))),
    "telemetry_config": _fresh("TelemetryConfig", "B"),
}
_REDUCE = ("AUTO", "NCCL", "UB", "MINLATENCY", "ONESHOT", "TWOSHOT", "LOWPRECISION", "MNNVL", "NCCL_SYMMETRIC")
TORCH = {
    "generation_config": Field(word({"auto": "B", "trtllm": "B"}), "trtllm", "B"),
    "garbage_collection_gen0_threshold": Field(INT, 20000),
    "cuda_graph_config": Field(_graphs, dict),
    "encoder_cuda_graph_config": Field(opt(nested("EncodeCudaGraphConfig")), at="B"),
    "enable_encoder_decoder_mixed_cuda_graph": Field(boolean, True, "B"),
    "multimodal_config": Field(_multimodal, dict, "B"),
    "attention_dp_config": Field(opt(nested("AttentionDpConfig"))),
    "disable_overlap_scheduler": Field(boolean, False),
    "moe_config": _fresh("MoeConfig"),
    "nvfp4_gemm_config": _fresh("Nvfp4GemmConfig"),
    "dwdp_config": Field(opt(nested("DwdpConfig")), at="B"),
    "encoder_max_batch_size": Field(opt(POSITIVE), at="B"),
    "encoder_max_num_tokens": Field(opt(POSITIVE), at="B"),
    "attn_backend": Field(text, "TRTLLM"),
    "enable_mla_skip_correction": Field(boolean, False, "B"),
    "mla_skip_correction_threshold": Field(number(whole=False, above=0, high=32), 8.0, "B"),
    "sampler_type": Field(_sampler, "auto"),
    "sampler_force_async_worker": Field(boolean, False),
    "enable_in_graph_sampling": Field(boolean, False, "B"),
    "enable_speculative_beam_history_d2h": Field(boolean, False, "B"),
    "enable_early_first_token_response": Field(boolean, False, "B"),
    "enable_low_latency_host_dispatch": Field(boolean, False, "B"),
    "enable_iter_perf_stats": Field(boolean, False),
    "enable_iter_req_stats": Field(boolean, False),
    "print_iter_log": Field(boolean, False),
    "batch_wait_timeout_ms": Field(number(whole=False, low=0), 0),
    "batch_wait_timeout_iters": Field(NATURAL, 0),
    "batch_wait_max_tokens_ratio": Field(number(whole=False, low=0, high=1), 0),
    "torch_compile_config": Field(opt(nested("TorchCompileConfig"))),
    "prefill_cuda_graph_backend": Field(
        word(dict.fromkeys(("disabled", "piecewise", "breakable"), "B")), "disabled", "B"
    ),
    "prefill_capture_num_tokens": Field(opt(list_of(INT)), at="B"),
    "enable_autotuner": Field(boolean, True),
    "use_fine_grained_sync": Field(boolean, False, "B"),
    "enable_layerwise_nvtx_marker": Field(boolean, False),
    "load_format": Field(
        word({"AUTO": "AB", "DUMMY": "AB", "VISION_ONLY": "AB", "GMS": "B"}, folds=True, members=LoadFormat), "AUTO"
    ),
    "enable_min_latency": Field(boolean, False),
    "stream_interval": Field(POSITIVE, 1),
    "force_dynamic_quantization": Field(boolean, False),
    "allreduce_strategy": Field(opt(word(_REDUCE)), "AUTO"),
    "checkpoint_loader": Field(anything),
    "checkpoint_format": Field(opt(text)),
    "checkpoint_io_policy": Field(word(dict.fromkeys(("auto", "native", "rank_striped_read_ahead"), "B")), "auto", "B"),
    "mx_config": _fresh("ModelExpressConfig", "B"),
    "gms_config": _fresh("GmsConfig", "B"),
    "kv_connector_config": Field(opt(nested("KvCacheConnectorConfig"))),
    "mm_encoder_only": Field(boolean, False),
    "disable_mm_encoder": Field(boolean, False, "B"),
    "encode_only": Field(boolean, False, "B"),
    "ray_worker_extension_cls": Field(opt(text)),
    "ray_placement_config": Field(opt(nested("RayPlacementConfig"))),
    "ray_worker_nsight_options": Field(opt(map_of(text, text)), at="B"),
    "enable_sleep": Field(boolean, False, "A"),
    "sleep_config": Field(opt(nested("SleepConfig")), at="B"),
    "reorder_policy_config": Field(opt(nested("ReorderRequestPolicyConfig")), at="B"),
    "enable_resource_governor": Field(boolean, False, "B"),
    "use_cute_dsl_blockscaling_mm": Field(boolean, False),
    "use_cute_dsl_blockscaling_bmm": Field(boolean, False),
    "use_cute_dsl_bf16_bmm": Field(boolean, False, "B"),
    "use_cute_dsl_bf16_gemm": Field(boolean, False, "B"),
    "disable_flashinfer_sampling": Field(boolean, False, "A"),
    "max_stats_len": Field(_stats_length, 1000),
    "layer_wise_benchmarks_config": _fresh("LayerwiseBenchmarksConfig"),
    "backend": Field(word(("pytorch",)), "pytorch"),
}
TRT = {
    "enable_tqdm": Field(boolean, False),
    "workspace": Field(opt(text)),
    "fail_fast_on_attention_window_too_large": Field(boolean, False),
    "enable_build_cache": Field(_build_cache, False),
    "extended_runtime_perf_knob_config": Field(opt(nested("ExtendedRuntimePerfKnobConfig"))),
    "calib_config": _fresh("CalibConfig"),
    "quant_config": _fresh("QuantConfig"),
    "embedding_parallel_mode": Field(
        word(("NONE", "SHARDING_ALONG_VOCAB", "SHARDING_ALONG_HIDDEN")), "SHARDING_ALONG_VOCAB"
    ),
    "fast_build": Field(boolean, False),
    "build_config": Field(opt(nested("BuildConfig"))),
    "enable_prompt_adapter": Field(boolean, False),
    "max_prompt_adapter_token": Field(INT, 0),
    "batching_type": Field(opt(word(("STATIC", "INFLIGHT"), members=BatchingType))),
    "normalize_log_probs": Field(boolean, False),
    "load_format": Field(word(("auto", "dummy")), "auto"),
    "backend": Field(opt(text)),
}


class BaseLlmArgs(Config):
    """Root of both, for isinstance checks."""


def _engine_era(field: Field) -> Field:
    return Field(field.kind, field.default, "A", alias=field.alias)


TorchLlmArgs = define("TorchLlmArgs", base=BaseLlmArgs, fields={**COMMON, **TORCH})
TrtLlmArgs = define(
    "TrtLlmArgs",
    base=BaseLlmArgs,
    fields={name: _engine_era(field) for name, field in {**COMMON, **TRT}.items() if has(field.at, "A")},
)


def gpus_on_node() -> int:
    return int(BEHAVIOUR.get("gpus"))
