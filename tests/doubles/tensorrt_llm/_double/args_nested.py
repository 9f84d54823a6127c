"""Fields of the nested configuration classes, read in the snapshots A and B of llm_args.py."""

from __future__ import annotations

import enum

from .config import Field, config, define
from .kinds import anything, boolean, either, list_of, map_of, number, opt, text, word

__all__ = ["CapacitySchedulerPolicy", "ContextChunkingPolicy", "WaitingQueuePolicy"]

INT, FLOAT = number(), number(whole=False)
NATURAL, POSITIVE = number(low=0), number(low=1)


class CapacitySchedulerPolicy(str, enum.Enum):
    MAX_UTILIZATION = "MAX_UTILIZATION"
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    STATIC_BATCH = "STATIC_BATCH"


class ContextChunkingPolicy(str, enum.Enum):
    FIRST_COME_FIRST_SERVED = "FIRST_COME_FIRST_SERVED"
    EQUAL_PROGRESS = "EQUAL_PROGRESS"
    FORCE_CHUNK = "FORCE_CHUNK"


class WaitingQueuePolicy(str, enum.Enum):
    FCFS = "fcfs"
    PRIORITY = "priority"


define(
    "DynamicBatchConfig",
    fields={
        "enable_batch_size_tuning": Field(boolean, True),
        "enable_max_num_tokens_tuning": Field(boolean, False),
        "dynamic_batch_moving_average_window": Field(INT, 128),
    },
)
define(
    "SchedulerConfig",
    fields={
        "capacity_scheduler_policy": Field(
            word(tuple(CapacitySchedulerPolicy.__members__), members=CapacitySchedulerPolicy), "GUARANTEED_NO_EVICT"
        ),
        "context_chunking_policy": Field(
            opt(
                word(
                    {"FIRST_COME_FIRST_SERVED": "AB", "EQUAL_PROGRESS": "AB", "FORCE_CHUNK": "B"},
                    members=ContextChunkingPolicy,
                )
            )
        ),
        "dynamic_batch_config": Field(opt(config("DynamicBatchConfig"))),
        "waiting_queue_policy": Field(word({"fcfs": "AB", "priority": "B"}, members=WaitingQueuePolicy), "fcfs"),
        "use_python_scheduler": Field(boolean, False, "B"),
        "enable_prefix_aware_scheduling": Field(boolean, True, "B"),
    },
)
define(
    "CudaGraphConfig",
    fields={
        "batch_sizes": Field(opt(list_of(INT))),
        "max_batch_size": Field(NATURAL, 0),
        "enable_padding": Field(boolean, False),
        "mode": Field(word({"decode": "B"}), "decode", "B"),
    },
)
define(
    "EncodeCudaGraphConfig",
    fields={
        "batch_sizes": Field(opt(list_of(INT)), at="B"),
        "max_batch_size": Field(NATURAL, 0, "B"),
        "enable_padding": Field(boolean, False, "B"),
        "mode": Field(word({"encode": "B"}), "encode", "B"),
        "num_tokens": Field(opt(list_of(POSITIVE, least=1)), at="B"),
        "max_num_token": Field(NATURAL, 0, "B"),
        "seq_lens": Field(opt(list_of(POSITIVE, least=1)), at="B"),
        "max_seq_len": Field(NATURAL, 0, "B"),
    },
)
define(
    "MoeLoadBalancerConfig",
    fields={
        "num_slots": Field(opt(INT)),
        "initial_global_assignments": Field(opt(map_of(INT, list_of(INT)))),
        "layer_updates_per_iter": Field(INT, 0),
    },
)
MOE_BACKENDS = {
    **dict.fromkeys(("AUTO", "CUTLASS", "CUTEDSL", "TRTLLM", "DEEPGEMM", "VANILLA", "TRITON"), "AB"),
    "WIDEEP": "A",
    **dict.fromkeys(("DENSEGEMM", "MARLIN", "MEGAMOE_DEEPGEMM", "MEGAMOE_CUTEDSL"), "B"),
}
define(
    "MoeConfig",
    fields={
        "backend": Field(word(MOE_BACKENDS), "AUTO"),
        "max_num_tokens": Field(opt(INT)),
        "load_balancer": Field(opt(either(config("MoeLoadBalancerConfig"), text))),
        "disable_finalize_fusion": Field(boolean, False),
        "use_low_precision_moe_combine": Field(boolean, False),
    },
)
define(
    "Nvfp4GemmConfig",
    fields={
        "allowed_backends": Field(
            list_of(
                word({**dict.fromkeys(("cutlass", "cublaslt", "cutedsl", "cuda_core"), "AB"), "marlin": "B"}), least=1
            ),
            lambda: ["cutlass", "cublaslt", "cuda_core"],
        )
    },
)
define(
    "AttentionDpConfig",
    fields={
        "enable_balance": Field(boolean, False),
        "timeout_iters": Field(INT, 50),
        "batching_wait_iters": Field(INT, 10),
        "enable_kv_cache_aware_routing": Field(boolean, False, "B"),
        "kv_cache_routing_load_balance_weight": Field(FLOAT, 1.0, "B"),
        "kv_cache_routing_match_rate_threshold": Field(FLOAT, 0.1, "B"),
        "kv_cache_routing_fair_share_multiplier": Field(FLOAT, 2.0, "B"),
        "kv_cache_routing_cold_start_warmup": Field(boolean, False, "B"),
        "kv_cache_routing_account_for_in_transfer": Field(boolean, False, "B"),
        "kv_cache_routing_conversation_affinity": Field(boolean, False, "B"),
        "kv_cache_routing_max_sessions": Field(INT, 65536, "B"),
        "kv_cache_routing_new_conv_placement": Field(
            word({"round_robin": "B", "least_queued": "B"}), "round_robin", "B"
        ),
    },
)
define(
    "CpConfig",
    fields={
        "cp_type": Field(word({"ULYSSES": "AB", "STAR": "A", "RING": "AB", "HELIX": "AB"}, folds=True), "ULYSSES"),
        "tokens_per_block": Field(opt(INT)),
        "use_nccl_for_alltoall": Field(opt(boolean)),
        "fifo_version": Field(opt(INT)),
        "cp_anchor_size": Field(opt(INT), at="A"),
        "block_size": Field(opt(INT), at="A"),
    },
)
_CONNECTOR = ("connector_module", "connector_scheduler_class", "connector_worker_class")
define(
    "KvCacheConnectorConfig",
    fields={
        "connector": Field(opt(text), at="B"),
        **{name: Field(opt(text)) for name in _CONNECTOR},
        "server_url": Field(opt(text), at="B"),
    },
)
define(
    "LayerwiseBenchmarksConfig",
    fields={
        "calibration_mode": Field(word(("NONE", "MARK", "COLLECT")), "NONE"),
        "calibration_file_path": Field(opt(text)),
        "calibration_layer_indices": Field(opt(list_of(INT))),
    },
)
define(
    "RayPlacementConfig",
    fields={
        "defer_workers_init": Field(boolean, False),
        "placement_groups": Field(opt(list_of(anything))),
        "placement_bundle_indices": Field(opt(list_of(list_of(INT)))),
        "per_worker_gpu_share": Field(opt(number(whole=False, above=0, high=1))),
    },
)
define(
    "PeftCacheConfig",
    fields={
        "num_host_module_layer": Field(INT, 0),
        "num_device_module_layer": Field(INT, 0),
        "optimal_adapter_size": Field(INT, 8),
        "max_adapter_size": Field(INT, 64),
        "num_put_workers": Field(INT, 1),
        "num_ensure_workers": Field(INT, 1),
        "num_copy_streams": Field(INT, 1),
        "max_pages_per_block_host": Field(INT, 24),
        "max_pages_per_block_device": Field(INT, 8),
        "device_cache_percent": Field(FLOAT, 0.02),
        "host_cache_size": Field(INT, 1024**3),
        "lora_prefetch_dir": Field(opt(text)),
    },
)
define(
    "CacheTransceiverConfig",
    fields={
        "backend": Field(opt(word(("DEFAULT", "UCX", "NIXL", "MOONCAKE", "MPI")))),
        "transceiver_runtime": Field(opt(word({"CPP": "AB", "PYTHON": "AB", "auto": "B"})), None, changed="auto"),
        "max_tokens_in_buffer": Field(opt(INT)),
        "kv_transfer_timeout_ms": Field(opt(POSITIVE), None, changed=60000),
        "kv_transfer_sender_future_timeout_ms": Field(opt(POSITIVE), 1000),
        "kv_transfer_poll_interval_ms": Field(opt(POSITIVE), 5000, "B"),
        "kv_cache_bounce_size_mb": Field(NATURAL, 0, "B"),
        "enable_pipelined_transfer": Field(boolean, False, "B"),
    },
)
define(
    "TorchCompileConfig",
    fields={
        "enable_fullgraph": Field(boolean, True),
        "enable_inductor": Field(boolean, False),
        "enable_piecewise_cuda_graph": Field(boolean, False),
        "capture_num_tokens": Field(opt(list_of(POSITIVE))),
        "enable_userbuffers": Field(boolean, True),
        "max_num_streams": Field(POSITIVE, 1, changed=3),
    },
)
define(
    "LoraConfig",
    fields={
        "lora_dir": Field(list_of(text), list),
        "lora_ckpt_source": Field(word(("hf", "nemo")), "hf"),
        "max_lora_rank": Field(INT, 64),
        "lora_target_modules": Field(list_of(text), list),
        "trtllm_modules_to_hf_modules": Field(map_of(text, text), dict),
        "max_loras": Field(opt(INT)),
        "max_cpu_loras": Field(opt(INT)),
        "swap_gate_up_proj_lora_b_weight": Field(boolean, True),
        "overlap_lora_and_base": Field(boolean, False, "B"),
        "cuda_graph_specialize_lora": Field(boolean, False, "B"),
    },
)
