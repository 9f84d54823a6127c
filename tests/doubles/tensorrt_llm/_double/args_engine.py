"""Fields of what only the TensorRT backend takes, read in snapshot A of llm_args.py and in builder.py."""

from __future__ import annotations

import math

from .config import Field, config, define
from .kinds import anything, boolean, list_of, number, opt, path, text, word

__all__: list[str] = []

INT, FLOAT = number(), number(whole=False)

define(
    "CalibConfig",
    fields={
        "device": Field(word(("cuda", "cpu")), "cuda"),
        "calib_dataset": Field(text, "cnn_dailymail"),
        "calib_batches": Field(INT, 512),
        "calib_batch_size": Field(INT, 1),
        "calib_max_seq_length": Field(INT, 512),
        "random_seed": Field(INT, 1234),
        "tokenizer_max_seq_length": Field(INT, 2048),
    },
)
define(
    "ExtendedRuntimePerfKnobConfig",
    fields={
        "multi_block_mode": Field(boolean, True),
        "enable_context_fmha_fp32_acc": Field(boolean, False),
        "cuda_graph_mode": Field(boolean, False),
        "cuda_graph_cache_size": Field(INT, 0),
    },
)
define(
    "QuantConfig",
    fields={
        "quant_algo": Field(opt(text)),
        "kv_cache_quant_algo": Field(opt(text)),
        "group_size": Field(opt(INT), 128),
        "smoothquant_val": Field(FLOAT, 0.5),
        "clamp_val": Field(opt(list_of(FLOAT))),
        "use_meta_recipe": Field(boolean, False),
        "has_zero_point": Field(boolean, False),
        "pre_quant_scale": Field(boolean, False),
        "exclude_modules": Field(opt(list_of(text))),
        "mamba_ssm_cache_dtype": Field(opt(text)),
    },
)
define(
    "BuildCacheConfig",
    fields={
        "cache_root": Field(opt(path)),
        "max_records": Field(INT, 10),
        "max_cache_storage_gb": Field(number(whole=False, low=0, high=math.inf), 256),
    },
)
define(
    "BuildConfig",
    fields={
        "max_input_len": Field(INT, 1024),
        "max_seq_len": Field(opt(INT)),
        "opt_batch_size": Field(INT, 8),
        "max_batch_size": Field(INT, 2048),
        "max_beam_width": Field(INT, 1),
        "max_num_tokens": Field(INT, 8192),
        "opt_num_tokens": Field(opt(INT)),
        "max_prompt_embedding_table_size": Field(INT, 0),
        "kv_cache_type": Field(opt(text)),
        "gather_context_logits": Field(boolean, False),
        "gather_generation_logits": Field(boolean, False),
        "strongly_typed": Field(boolean, True),
        "force_num_profiles": Field(opt(INT)),
        "profiling_verbosity": Field(text, "layer_names_only"),
        "enable_debug_output": Field(boolean, False),
        "max_draft_len": Field(INT, 0),
        "speculative_decoding_mode": Field(anything, 1),
        "use_refit": Field(boolean, False),
        "input_timing_cache": Field(opt(text)),
        "output_timing_cache": Field(text, "model.cache"),
        "lora_config": Field(config("LoraConfig"), dict),
        "weight_sparsity": Field(boolean, False),
        "weight_streaming": Field(boolean, False),
        "plugin_config": Field(anything, dict),
        "use_strip_plan": Field(boolean, False),
        "max_encoder_input_len": Field(INT, 1024),
        "dry_run": Field(boolean, False),
        "visualize_network": Field(opt(text)),
        "monitor_memory": Field(boolean, False),
        "use_mrope": Field(boolean, False),
    },
)
