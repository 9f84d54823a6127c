"""Fields of KvCacheConfig and of what hangs below it, read in the snapshots A and B of llm_args.py."""

from __future__ import annotations

from .config import Field, config, define
from .kinds import Refused, boolean, either, list_of, number, opt, text, word

__all__: list[str] = []

INT, FLOAT = number(), number(whole=False)
NATURAL, POSITIVE = number(low=0), number(low=1)
SHARE = number(whole=False, low=0, high=1)
_TORCH_DTYPES = (
    "float16",
    "half",
    "bfloat16",
    "float32",
    "float64",
    "int64",
    "int32",
    "int8",
    "bool",
    "fp16",
    "bf16",
    "fp32",
)


def _window(value: object, at: str) -> object:
    """Snapshot B also takes the mark of a recurrent layer; the sources read do not give its number."""
    return POSITIVE(value, at)


def _cache_dtype(value: object, at: str) -> object:
    """Any text in A; in B one of the cache formats or a torch dtype, in any case."""
    word_given = str(text(value, at))
    if at == "A":
        return word_given
    lower = word_given.lower()
    if lower in ("auto", "fp8", "fp8_ds_mla", "nvfp4", *_TORCH_DTYPES):
        return lower
    raise Refused(f"{value!r} is no cache dtype")


def _share(value: object, at: str) -> object:
    """B validates a bound that null does not pass."""
    return opt(SHARE)(value, at) if at == "A" else SHARE(value, at)


def _cross(value: object, at: str) -> object:
    return opt(FLOAT if at == "A" else SHARE)(value, at)


def _resume(value: object, at: str) -> object:
    return (SHARE if at == "A" else number(whole=False, above=0, high=1))(value, at)


def _manager(value: object, at: str) -> object:
    return boolean(value, at) if at == "A" else either(boolean, word(("auto",)))(value, at)


define(
    "KVEventsConfig",
    fields={
        "enable_kv_cache_events": Field(boolean, False, "B"),
        "publisher": Field(opt(word({"null": "B", "zmq": "B"})), at="B"),
        "endpoint": Field(text, "tcp://*:5557", "B"),
        "replay_endpoint": Field(opt(text), at="B"),
        "buffer_steps": Field(POSITIVE, 10_000, "B"),
        "hwm": Field(POSITIVE, 100_000, "B"),
        "max_queue_size": Field(POSITIVE, 100_000, "B"),
        "topic": Field(text, "", "B"),
    },
)
define(
    "BlockReuseConfig",
    fields={
        "policy": Field(
            word(dict.fromkeys(("all_reusable", "per_request", "per_conversation"), "B")), "all_reusable", "B"
        ),
        "max_num_turns": Field(POSITIVE, 1, "B"),
    },
)
define(
    "MambaStateConfig",
    fields={
        "periodic_snapshot_interval": Field(NATURAL, 0, "B"),
        "additional_snapshot_offsets_from_start": Field(list_of(POSITIVE), list, "B"),
        "additional_snapshot_offsets_from_end": Field(list_of(NATURAL), list, "B"),
        "enable_branch_snapshot": Field(boolean, False, "B"),
    },
)
define(
    "KvCacheConfig",
    fields={
        "enable_block_reuse": Field(boolean, True),
        "max_tokens": Field(opt(INT)),
        "max_attention_window": Field(opt(list_of(_window, least=1))),
        "sink_token_length": Field(opt(INT)),
        "free_gpu_memory_fraction": Field(_share, 0.9),
        "host_cache_size": Field(opt(INT)),
        "disk_cache_size": Field(opt(NATURAL), at="B"),
        "disk_cache_path": Field(opt(text), at="B"),
        "onboard_blocks": Field(boolean, True, "A"),
        "cross_kv_cache_fraction": Field(_cross),
        "secondary_offload_min_priority": Field(opt(INT)),
        "event_buffer_max_size": Field(INT, 0),
        "attention_dp_events_gather_period_ms": Field(INT, 5),
        "kv_events_config": Field(opt(config("KVEventsConfig")), at="B"),
        "enable_partial_reuse": Field(boolean, True),
        "copy_on_partial_reuse": Field(boolean, True),
        "use_uvm": Field(boolean, False),
        "max_gpu_total_bytes": Field(NATURAL, 0),
        "iteration_stats_interval": Field(POSITIVE, 1, "B"),
        "dtype": Field(_cache_dtype, "auto"),
        "mamba_ssm_cache_dtype": Field(word(("auto", "float16", "bfloat16", "float32")), "auto"),
        "mamba_ssm_stochastic_rounding": Field(boolean, False, "B"),
        "mamba_ssm_philox_rounds": Field(POSITIVE, 10, "B"),
        "tokens_per_block": Field(INT, 32),
        "mamba_state_cache_interval": Field(opt(NATURAL), at="B"),
        "mamba_state_config": Field(config("MambaStateConfig"), dict, "B"),
        "use_kv_cache_manager_v2": Field(_manager, False, changed="auto"),
        "enable_swa_scratch_reuse": Field(boolean, False, "B"),
        "kv_cache_event_hash_algo": Field(
            word(dict.fromkeys(("auto", "v1_block_key", "v2_sha256", "v2_sha256_64"), "B")), "auto", "B"
        ),
        "max_util_for_resume": Field(_resume, 0.95),
        "enable_kv_pool_rebalance": Field(boolean, False, "B"),
        "kv_pool_rebalance_min_sampled_kv_caches": Field(NATURAL, 2000, "B"),
        "kv_pool_rebalance_cooldown_secs": Field(number(whole=False, low=0), 120.0, "B"),
        "kv_pool_rebalance_target_ratio_update_interval": Field(POSITIVE, 100, "B"),
        "kv_pool_rebalance_ratio_threshold": Field(number(whole=False, above=1), 1.25, "B"),
        "kv_pool_rebalance_moving_average_decay": Field(number(whole=False, above=0, high=1), 0.9999, "B"),
        "kv_pool_rebalance_check_interval": Field(POSITIVE, 10, "B"),
        "disk_prefetch_num_reqs": Field(NATURAL, 0, "B"),
        "fp8_context_mla_kv_len_cap": Field(opt(INT), at="B"),
        "pool_ratio": Field(opt(list_of(number(whole=False, above=0), least=1)), at="B"),
        "avg_seq_len": Field(opt(POSITIVE), at="B"),
        "block_reuse_config": Field(config("BlockReuseConfig"), dict, "B"),
        # documentation of 1.4.0rc4, names only
        "host_cache_bind_to_gpu_numa_node": Field(boolean, False, "D"),
        "disk_io_threads": Field(opt(POSITIVE), at="D"),
        "disk_write_through": Field(boolean, False, "D"),
        "cold_tier_offload_min_priority": Field(opt(INT), at="D"),
        "mixed_precision_first_n": Field(opt(INT), at="D"),
    },
)
