"""Validators across fields, read in the snapshots A and B of llm_args.py. Importing this module attaches them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .args_top import gpus_on_node
from .config import CLASSES, Values, remade, rule
from .kinds import Refused

__all__: list[str] = []

Given = Mapping[str, Any]
_DEFAULT_SIZES = (("max_batch_size", 2048), ("max_input_len", 1024), ("max_beam_width", 1), ("max_num_tokens", 8192))
_NESTED = {
    "kv_cache_config": "KvCacheConfig",
    "scheduler_config": "SchedulerConfig",
    "telemetry_config": "TelemetryConfig",
    "cuda_graph_config": "CudaGraphConfig",
    "multimodal_config": "MultimodalConfig",
    "moe_config": "MoeConfig",
    "nvfp4_gemm_config": "Nvfp4GemmConfig",
    "mx_config": "ModelExpressConfig",
    "gms_config": "GmsConfig",
    "layer_wise_benchmarks_config": "LayerwiseBenchmarksConfig",
    "calib_config": "CalibConfig",
    "quant_config": "QuantConfig",
    "mamba_state_config": "MambaStateConfig",
    "block_reuse_config": "BlockReuseConfig",
    "policy_args": "AgentTreeConfig",
}


def fill(values: Values, at: str) -> None:
    """Default objects where the default is an object of its own."""
    for name, cls in _NESTED.items():
        if isinstance(values.get(name), dict):
            values[name] = remade(CLASSES[cls], values[name], at)


@rule("CudaGraphConfig", "EncodeCudaGraphConfig")
def graph_sizes(values: Values, at: str, given: Given) -> None:
    del at, given
    for many, one in (("batch_sizes", "max_batch_size"), ("num_tokens", "max_num_token"), ("seq_lens", "max_seq_len")):
        sizes, top = values.get(many), values.get(one)
        if sizes:
            if top not in (0, max(sizes)):
                raise Refused(f"{one} {top} is not the largest of {many}, {max(sizes)}")
            values[many], values[one] = sorted(sizes), max(sizes)
    values["max_batch_size"] = values["max_batch_size"] or 128


@rule("AttentionDpConfig")
def balance(values: Values, at: str, given: Given) -> None:
    del at, given
    for name in ("batching_wait_iters", "timeout_iters"):
        if values["enable_balance"] and values[name] < 0:
            raise Refused(f"{name} {values[name]} is below 0, with enable_balance")


@rule("LayerwiseBenchmarksConfig")
def calibration_file(values: Values, at: str, given: Given) -> None:
    del at, given
    if values["calibration_mode"] == "COLLECT" and not values["calibration_file_path"]:
        raise Refused("calibration_file_path is needed in COLLECT mode")


@rule("RayPlacementConfig")
def placement(values: Values, at: str, given: Given) -> None:
    del at, given
    groups, indices = values["placement_groups"], values["placement_bundle_indices"]
    if (groups is None) != (indices is None):
        raise Refused("placement_groups and placement_bundle_indices belong together")
    if groups is not None:
        raise Refused("placement_groups needs Ray, which is not installed")


@rule("KvCacheConnectorConfig")
def connector(values: Values, at: str, given: Given) -> None:
    del at, given
    preset = values.get("connector")
    if preset is not None and preset not in ("lmcache", "lmcache-mp", "kvbm"):
        raise Refused(f"connector preset {preset!r} is not known")
    for name in ("connector_module", "connector_scheduler_class", "connector_worker_class"):
        if preset is None and values[name] is None:
            raise Refused(f"{name} is required")


@rule("ReorderRequestPolicyConfig")
def reorder(values: Values, at: str, given: Given) -> None:
    del given
    fill(values, at)


@rule("KvCacheConfig")
def cache(values: Values, at: str, given: Given) -> None:
    del given
    fill(values, at)
    if at == "A":
        return
    if values["dtype"] == "fp8_ds_mla" and values["enable_kv_pool_rebalance"]:
        raise Refused("enable_kv_pool_rebalance cannot be used with dtype fp8_ds_mla")
    if values["disk_cache_size"] and not Path(values["disk_cache_path"] or "/nonexistent").is_dir():
        raise Refused("disk_cache_size needs disk_cache_path to be a folder")
    ratio = values["pool_ratio"]
    if ratio is not None and not math.isclose(sum(ratio), 1.0, rel_tol=0.0, abs_tol=1e-6):
        raise Refused(f"pool_ratio sums up to {sum(ratio)}, not to 1")
    state = values["mamba_state_config"]
    if values["mamba_state_cache_interval"] is not None and "periodic_snapshot_interval" in state._given:
        raise Refused("mamba_state_cache_interval is given beside mamba_state_config.periodic_snapshot_interval")
    snapshots = (
        state.additional_snapshot_offsets_from_start
        or state.additional_snapshot_offsets_from_end
        or state.enable_branch_snapshot
    )
    if snapshots and values["use_kv_cache_manager_v2"] is False:
        raise Refused("snapshots of Mamba states need use_kv_cache_manager_v2")


@rule("MultimodalConfig")
def encoder_graphs(values: Values, at: str, given: Given) -> None:
    del at, given
    if values["encoder_cuda_graph"] is not None and values["encoder_side_stream_max_ahead"] > 0:
        raise Refused("encoder_cuda_graph and encoder_side_stream_max_ahead exclude each other")
    if values["video_pruning_rate"] == 1:
        raise Refused("video_pruning_rate must be below 1")


@rule("GmsConfig")
def gms_tag(values: Values, at: str, given: Given) -> None:
    del at, given
    if not values["tag"].strip():
        raise Refused("tag is empty")


@rule("TorchLlmArgs", "TrtLlmArgs")
def common(values: Values, at: str, given: Given) -> None:
    del given
    fill(values, at)
    for name, default in _DEFAULT_SIZES:
        if values[name] is None:
            values[name] = default
    for name in ("moe_cluster_parallel_size", "moe_tensor_parallel_size", "moe_expert_parallel_size"):
        if values[name] is None:
            values[name] = -1
    if values["gpus_per_node"] is None:
        values["gpus_per_node"] = gpus_on_node()
    peft = values["peft_cache_config"]
    if peft is not None and peft.lora_prefetch_dir is not None:
        raise Refused("lora_prefetch_dir is not supported")
    lora = values["lora_config"]
    if at != "A" and lora is not None and lora.cuda_graph_specialize_lora and values["enable_attention_dp"]:
        raise Refused("cuda_graph_specialize_lora cannot be used with enable_attention_dp")
    if values.get("post_processor_hook") is not None and values["skip_tokenizer_init"]:
        raise Refused("post_processor_hook needs a tokenizer")


@rule("TorchLlmArgs")
def torch_only(values: Values, at: str, given: Given) -> None:
    balancer = values["moe_config"].load_balancer
    if isinstance(balancer, str) and not Path(balancer).exists():
        raise FileNotFoundError(f"load balancer file {balancer} does not exist")
    if values["orchestrator_type"] != "ray":
        for name in ("ray_worker_extension_cls", "ray_placement_config"):
            if values[name] is not None:
                raise Refused(f"{name} needs orchestrator_type ray")
    _helix(values)
    if at != "A":
        _modes(values)
        _prefill_graphs(values, given)


def _helix(values: Values) -> None:
    cp = values["cp_config"]
    if values["context_parallel_size"] == 1 or cp is None or cp.cp_type != "HELIX" or cp.tokens_per_block is None:
        return
    if cp.tokens_per_block != values["kv_cache_config"].tokens_per_block:
        raise AssertionError("cp_config.tokens_per_block is not kv_cache_config.tokens_per_block, with HELIX")


def _modes(values: Values) -> None:
    encodes, encoder_only = values["encode_only"], values["mm_encoder_only"]
    if encoder_only and (encodes or values["disable_mm_encoder"]):
        raise Refused("mm_encoder_only excludes encode_only and disable_mm_encoder")
    if values["encoder_cuda_graph_config"] is not None and (encodes or values["encoder_max_batch_size"] is None):
        raise Refused("encoder_cuda_graph_config needs encoder_max_batch_size, and excludes encode_only")
    if values["enable_mla_skip_correction"] and values["attn_backend"].upper() != "TRTLLM":
        raise Refused("enable_mla_skip_correction needs attn_backend TRTLLM")
    if values["load_format"] == "GMS" and values["moe_config"].load_balancer is not None:
        raise Refused("load_format GMS excludes moe_config.load_balancer")
    if values["enable_speculative_beam_history_d2h"] and values["sampler_force_async_worker"]:
        raise Refused("enable_speculative_beam_history_d2h excludes sampler_force_async_worker")


def _prefill_graphs(values: Values, given: Given) -> None:
    compiled, backend = values["torch_compile_config"], values["prefill_cuda_graph_backend"]
    is_piecewise = compiled is not None and compiled.enable_piecewise_cuda_graph
    if is_piecewise:
        if "prefill_cuda_graph_backend" in given and backend != "piecewise":
            raise Refused("enable_piecewise_cuda_graph conflicts with prefill_cuda_graph_backend")
        backend = values["prefill_cuda_graph_backend"] = "piecewise"
    old = compiled.capture_num_tokens if compiled is not None else None
    new = given.get("prefill_capture_num_tokens")
    if old is not None and new is not None and set(old) != set(new):
        raise Refused("capture_num_tokens conflicts with prefill_capture_num_tokens")
    if backend != "disabled" and values["encode_only"]:
        raise Refused("encode_only excludes CUDA graphs for prefill")
    has_lora = values["enable_lora"] or values["lora_config"] is not None
    if backend == "breakable" and (compiled is not None or has_lora):
        raise Refused("breakable prefill graphs exclude torch_compile_config and LoRA")


@rule("TrtLlmArgs")
def engine_only(values: Values, at: str, given: Given) -> None:
    del at, given
    if values["guided_decoding_backend"] == "llguidance":
        raise Refused("the TensorRT backend takes xgrammar only")
    if values["kv_cache_config"].dtype != "auto":
        raise AssertionError("kv_cache_config.dtype is not supported by the TensorRT backend")
