"""Arguments that are each fine and together are not, or have no effect. One function per rule; RULES is the list.

Each was read in a validator of TensorRT-LLM's llm_args.py unless its comment says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from .finding import ArgFinding, error, warning
from .view import View

__all__ = ["RULES", "Rule"]

Rule = Callable[[View], Iterator[ArgFinding]]
_ENCODER_KEYS: Final = ("num_tokens", "max_num_token", "seq_lens", "max_seq_len")
_CONNECTOR: Final = ("connector_module", "connector_scheduler_class", "connector_worker_class")
_TORCH_TYPES: Final = ("float16", "bfloat16", "float32", "half", "bfloat", "float")


def graph_sizes_agree(view: View) -> Iterator[ArgFinding]:
    sizes, top = list(view.numbers("cuda_graph_config.batch_sizes")), view.given("cuda_graph_config.max_batch_size")
    if sizes and type(top) is int and top not in (0, max(sizes)):
        path = "cuda_graph_config.max_batch_size"
        yield error(
            "cuda-graph-sizes", path, f"is {top}, but the largest of batch_sizes is {max(sizes)}", "give one of them"
        )


def graph_mode(view: View) -> Iterator[ArgFinding]:
    # Since 1.4 graphs for decoding and for encoders are two classes. Without a mode, the first encoder key with a value
    # tells; null and 0 tell nothing.
    graphs = view.section("cuda_graph_config")
    if graphs is None or not view.at.has("B") or graphs.get("mode") == "encode":
        return
    keys = [key for key in _ENCODER_KEYS if key in graphs]
    if "mode" in graphs or all(graphs[key] in (None, 0) for key in keys):
        for key in keys:
            path = f"cuda_graph_config.{key}"
            yield error("cuda-graph-mode", path, "is for encoders, and these are graphs for decoding", "leave it out")


def graphs_within_batch(view: View) -> Iterator[ArgFinding]:
    batch = view.number("max_batch_size")
    sizes = list(view.numbers("cuda_graph_config.batch_sizes"))
    top = max(sizes, default=view.given("cuda_graph_config.max_batch_size") or 0)
    if batch is not None and type(top) is int and top > batch:
        message = f"graphs for {top} requests, but max_batch_size is {batch}"
        yield warning("cuda-graph-sizes", "cuda_graph_config", message, "larger graphs only take memory")


def batch_within_tokens(view: View) -> Iterator[ArgFinding]:
    batch, tokens = view.number("max_batch_size"), view.number("max_num_tokens")
    if batch is not None and tokens is not None and batch > tokens:
        message = f"is {batch}, but a step holds max_num_tokens {tokens}, one for each request that generates"
        yield warning("batch-above-tokens", "max_batch_size", message, f"at most {tokens} has an effect")


def expert_shape_multiplies(view: View) -> Iterator[ArgFinding]:
    # Mapping: the experts' sizes multiply to tp, or to tp x cp where context parallelism shares them.
    tp, cp = view.number("tensor_parallel_size") or 1, view.number("context_parallel_size") or 1
    parts = {name: view.given(f"moe_{name}_parallel_size") for name in ("tensor", "expert", "cluster")}
    given = {name: size for name, size in parts.items() if type(size) is int and size > 0}
    product = math.prod(given.values())
    is_whole = "tensor" in given and "expert" in given
    fits = product in (tp, tp * cp) if is_whole and "cluster" not in given else tp * cp % product == 0
    if not fits and view.given("dwdp_config") is None:
        words = " x ".join(f"moe_{name}_parallel_size {size}" for name, size in given.items())
        path = f"moe_{next(iter(given))}_parallel_size"
        relation = "is not" if is_whole else "does not divide"
        yield error("expert-shape", path, f"{words} {relation} tensor_parallel_size {tp}", "their product is tp")


def slots_divide(view: View) -> Iterator[ArgFinding]:
    slots, experts = view.given("moe_config.load_balancer.num_slots"), view.given("moe_expert_parallel_size")
    if type(slots) is int and type(experts) is int and experts > 0 and slots % experts:
        path = "moe_config.load_balancer.num_slots"
        yield error("expert-slots", path, f"is {slots}, no multiple of moe_expert_parallel_size {experts}")


def attention_dp_settings(view: View) -> Iterator[ArgFinding]:
    is_on = view.is_on("enable_attention_dp")
    for path in ("attention_dp_config", "enable_lm_head_tp_in_adp"):
        if view.given(path) and not is_on:
            yield warning("attention-dp-off", path, "has no effect while enable_attention_dp is off")
    if view.given("attention_dp_config.enable_balance") is True:
        for name in ("timeout_iters", "batching_wait_iters"):
            value = view.given(f"attention_dp_config.{name}")
            if type(value) is int and value < 0:
                message = f"is {value}, but enable_balance needs 0 or more"
                yield error("attention-dp-balance", f"attention_dp_config.{name}", message)
    if is_on and view.given("lora_config.cuda_graph_specialize_lora") is True:
        message = "cannot be used with enable_attention_dp"
        yield error("attention-dp-lora", "lora_config.cuda_graph_specialize_lora", message, "switch one of them off")


def scheduler_of_the_backend(view: View) -> Iterator[ArgFinding]:
    if view.is_torch and view.section("scheduler_config.dynamic_batch_config") is not None:
        message = "applies to the TensorRT backend only and cannot be used with PyTorch"
        yield error("scheduler-backend", "scheduler_config.dynamic_batch_config", message, "leave it out")
    policy = view.text("scheduler_config.capacity_scheduler_policy")
    if view.section("kv_connector_config") is not None and policy != "GUARANTEED_NO_EVICT":
        path = "scheduler_config.capacity_scheduler_policy"
        yield error("connector-policy", path, f"is {policy}, but kv_connector_config needs GUARANTEED_NO_EVICT")


def connector_classes(view: View) -> Iterator[ArgFinding]:
    # The earlier states demand all three, as the table says; since 1.4 a preset brings them.
    section = view.section("kv_connector_config")
    if section is None or not view.at.has("B") or section.get("connector") is not None:
        return
    for name in _CONNECTOR:
        if section.get(name) is None:
            path = f"kv_connector_config.{name}"
            yield error("connector-class", path, "is missing, and no connector is named that brings it")


def calibration_file(view: View) -> Iterator[ArgFinding]:
    path = "layer_wise_benchmarks_config.calibration_file_path"
    if view.given("layer_wise_benchmarks_config.calibration_mode") == "COLLECT" and not view.given(path):
        yield error("calibration-file", path, "is missing, but calibration_mode is COLLECT")


def indexer_width(view: View) -> Iterator[ArgFinding]:
    section = view.section("sparse_attention_config")
    if section is None or not view.at.has("B"):
        return
    default = {"dsa": "fp8", "deepseek_v4": "fp4"}.get(str(section.get("algorithm")))
    width = section.get("index_head_dim")
    if default is not None and section.get("indexer_k_dtype", default) == "fp4" and width not in (None, 128):
        message = f"is {width}, but an indexer_k_dtype of fp4 needs 128"
        yield error("indexer-width", "sparse_attention_config.index_head_dim", message, "or set indexer_k_dtype: fp8")


def statistics_switches(view: View) -> Iterator[ArgFinding]:
    for path, needed in (
        ("enable_iter_req_stats", "enable_iter_perf_stats"),
        ("perf_metrics_max_requests", "return_perf_metrics"),
    ):
        if view.given(path) and not view.is_on(needed):
            yield warning("statistics-off", path, f"has no effect while {needed} is off", f"set {needed}")
    if view.given("kv_cache_config.event_buffer_max_size") and not view.is_on("kv_cache_config.enable_block_reuse"):
        # docs of get_kv_cache_events: events come from the reuse tree.
        path = "kv_cache_config.event_buffer_max_size"
        yield warning("events-without-reuse", path, "gives no events while enable_block_reuse is off")


def transfer_blocks(view: View) -> Iterator[ArgFinding]:
    # ai-dynamo/aiconfigurator pull request 307, since 1.2
    tokens, block = view.number("max_num_tokens"), view.number("kv_cache_config.tokens_per_block")
    if view.section("cache_transceiver_config") is not None and tokens and block and tokens % block:
        message = f"is {tokens}, no multiple of tokens_per_block {block}, which cache_transceiver_config needs"
        yield error("transfer-blocks", "max_num_tokens", message, f"such as {tokens // block * block or block}")


def block_sizes_agree(view: View) -> Iterator[ArgFinding]:
    block, kind = view.given("cp_config.tokens_per_block"), view.text("cp_config.cp_type") or ""
    own = view.number("kv_cache_config.tokens_per_block")
    if (
        kind.upper() == "HELIX"
        and (view.number("context_parallel_size") or 1) > 1
        and type(block) is int
        and block != own
    ):
        path = "cp_config.tokens_per_block"
        yield error(
            "helix-blocks", path, f"is {block}, but kv_cache_config.tokens_per_block is {own}", "make them equal"
        )


def cache_tiers(view: View) -> Iterator[ArgFinding]:
    if view.given("kv_cache_config.disk_cache_size") and not view.given("kv_cache_config.disk_cache_path"):
        yield error("disk-cache", "kv_cache_config.disk_cache_path", "is missing, but disk_cache_size is set")
    ratio = view.given("kv_cache_config.pool_ratio")
    if isinstance(ratio, list) and all(type(part) in (int, float) for part in ratio) and abs(sum(ratio) - 1) > 1e-6:
        yield error("pool-ratio", "kv_cache_config.pool_ratio", f"sums up to {sum(ratio):g}, not to 1")
    packed = view.text("kv_cache_config.dtype") == "fp8_ds_mla"
    if packed and view.given("kv_cache_config.enable_kv_pool_rebalance") is True:
        path = "kv_cache_config.enable_kv_pool_rebalance"
        yield error("packed-cache", path, "cannot be used with dtype fp8_ds_mla", "switch it off")


def ray_settings(view: View) -> Iterator[ArgFinding]:
    for path in ("ray_worker_extension_cls", "ray_placement_config"):
        if view.given(path) is not None and view.text("orchestrator_type") != "ray":
            yield error("ray", path, "needs orchestrator_type: ray")


def prefetch_of_adapters(view: View) -> Iterator[ArgFinding]:
    if view.given("peft_cache_config.lora_prefetch_dir") is not None:
        yield error(
            "lora-prefetch", "peft_cache_config.lora_prefetch_dir", "is declared but not supported", "leave it out"
        )


def engine_directory(view: View) -> Iterator[ArgFinding]:
    if view.is_torch:
        return
    dtype = view.text("kv_cache_config.dtype")
    if dtype != "auto":
        message = f"is {dtype}, but an engine brings its own cache type"
        yield error("engine-kv-dtype", "kv_cache_config.dtype", message, "build the engine with it; leave this out")
    if view.text("guided_decoding_backend") == "llguidance":
        message = "llguidance works with the PyTorch backend only"
        yield error("engine-guided", "guided_decoding_backend", message, "use xgrammar")
    load_format = view.given("load_format")
    if isinstance(load_format, str) and load_format not in ("auto", "dummy"):
        message = f"is {load_format}, but the TensorRT backend takes auto and dummy, in small letters"
        yield error("engine-load-format", "load_format", message)


def cache_of_the_loader(view: View) -> Iterator[ArgFinding]:
    # model_loader.py: the arguments take a torch type, the loader then stops with a ValueError
    path = "kv_cache_config.dtype"
    if view.is_torch and view.given(path) in _TORCH_TYPES:
        message = f"is {view.given(path)}, which passes as an argument and is refused when the model is loaded"
        yield error("cache-dtype", path, message, "use auto: the cache then has the type of the activations")


RULES: Final[tuple[Rule, ...]] = (
    graph_sizes_agree,
    graph_mode,
    graphs_within_batch,
    batch_within_tokens,
    expert_shape_multiplies,
    slots_divide,
    attention_dp_settings,
    scheduler_of_the_backend,
    connector_classes,
    calibration_file,
    indexer_width,
    statistics_switches,
    transfer_blocks,
    block_sizes_agree,
    cache_tiers,
    ray_settings,
    prefetch_of_adapters,
    engine_directory,
    cache_of_the_loader,
)
