"""trtllm-build without TensorRT: the command line of late 2025, the combination rules of builder.py, engine folders.

Like the builder it does not refuse what it can switch off: it warns in its log and goes on, so that whoever calls it
has to look at what came out.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import trtllm_tools_double as double

SCRIPT = "trtllm-build"
PLUGIN_TYPES = ["auto", "float16", "float32", "bfloat16", "int32", "disable"]
SWITCH = ["enable", "disable"]
FP8 = ["fp8", "disable"]
PLUGINS: dict[str, tuple[list[str], str | None]] = {
    "bert_attention_plugin": (PLUGIN_TYPES, "auto"),
    "gpt_attention_plugin": (PLUGIN_TYPES, "auto"),
    "gemm_plugin": ([*PLUGIN_TYPES, "fp8", "nvfp4"], None),
    "gemm_swiglu_plugin": (FP8, None),
    "fp8_rowwise_gemm_plugin": (PLUGIN_TYPES, None),
    "lora_plugin": (PLUGIN_TYPES, None),
    "dora_plugin": (SWITCH, "disable"),
    "moe_plugin": (PLUGIN_TYPES, "auto"),
    "mamba_conv1d_plugin": (PLUGIN_TYPES, "auto"),
    "low_latency_gemm_plugin": (FP8, None),
    "low_latency_gemm_swiglu_plugin": (FP8, None),
    "gemm_allreduce_plugin": (["float16", "bfloat16", "disable"], None),
    "nccl_plugin": (PLUGIN_TYPES, "auto"),
    "context_fmha": (SWITCH, "enable"),
    "bert_context_fmha_fp32_acc": (SWITCH, "disable"),
    "remove_input_padding": (SWITCH, "enable"),
    "use_paged_context_fmha": (SWITCH, "enable"),
    "use_fp8_context_fmha": (SWITCH, "enable"),
    "fuse_fp4_quant": (SWITCH, "disable"),
    "multiple_profiles": (SWITCH, "disable"),
    "paged_state": (SWITCH, "enable"),
    "streamingllm": (SWITCH, "disable"),
    "use_fused_mlp": (SWITCH, "enable"),
    "norm_quant_fusion": (SWITCH, "disable"),
    "reduce_fusion": (SWITCH, "disable"),
    "user_buffer": (SWITCH, "disable"),
    "pp_reduce_scatter": (SWITCH, "disable"),
}
INT4_OR_INT8 = ("W8A16", "W4A16", "W4A16_AWQ", "W4A16_GPTQ", "W4A8_AWQ", "W8A16_GPTQ")
SEVERITIES = ["internal_error", "error", "warning", "info", "verbose", "debug", "trace"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("checkpoint_dir", "model_config", "build_config", "model_cls_file", "model_cls_name"):
        parser.add_argument(f"--{name}", type=str, default=None)
    parser.add_argument("--output_dir", type=str, default="engine_outputs")
    parser.add_argument("--max_batch_size", type=int, default=2048)
    parser.add_argument("--max_input_len", type=int, default=1024)
    parser.add_argument("--max_seq_len", "--max_decoder_seq_len", dest="max_seq_len", type=int, default=None)
    parser.add_argument("--max_beam_width", type=int, default=1)
    parser.add_argument("--max_num_tokens", type=int, default=8192)
    parser.add_argument("--opt_num_tokens", type=int, default=None)
    parser.add_argument("--max_encoder_input_len", type=int, default=1024)
    parser.add_argument("--max_prompt_embedding_table_size", "--max_multimodal_len", type=int, default=0)
    parser.add_argument("--kv_cache_type", type=str.upper, choices=["CONTINUOUS", "PAGED", "DISABLED"], default=None)
    parser.add_argument("--paged_kv_cache", type=str, default=None)
    parser.add_argument("--input_timing_cache", type=str, default=None)
    parser.add_argument("--output_timing_cache", type=str, default="model.cache")
    verbosity = ["layer_names_only", "detailed", "none"]
    parser.add_argument("--profiling_verbosity", type=str, default="layer_names_only", choices=verbosity)
    flags = ("strip_plan", "weight_sparsity", "weight_streaming", "fast_build", "enable_debug_output", "dry_run")
    for name in (*flags, "monitor_memory"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--log_level", type=str, default="info", choices=SEVERITIES)
    parser.add_argument("--visualize_network", type=str, default=None)
    parser.add_argument("--logits_dtype", type=str, default=None, choices=["float16", "float32"])
    for name in ("gather_context_logits", "gather_generation_logits", "gather_all_token_logits"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--lora_dir", type=str, default=None, nargs="+")
    parser.add_argument("--lora_ckpt_source", type=str, default="hf", choices=["hf", "nemo"])
    parser.add_argument("--lora_target_modules", nargs="+", default=None)
    parser.add_argument("--max_lora_rank", type=int, default=64)
    modes = ["draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle"]
    parser.add_argument("--speculative_decoding_mode", default=None, choices=modes)
    parser.add_argument("--max_draft_len", type=int, default=0)
    for name, (choices, default) in PLUGINS.items():
        parser.add_argument(f"--{name}", type=str, choices=choices, default=default)
    parser.add_argument("--tokens_per_block", type=int, default=32)
    return parser.parse_args()


def main() -> None:
    double.begin(SCRIPT)
    args = parse()
    if args.multiple_profiles == "enable" and args.opt_num_tokens is not None:
        raise RuntimeError("multiple_profiles and opt_num_tokens together")
    model = json.loads((Path(args.checkpoint_dir) / "config.json").read_text(encoding="utf-8"))
    world = model["mapping"]["world_size"]
    for rank in range(world):
        assert (Path(args.checkpoint_dir) / f"rank{rank}.safetensors").stat().st_size > 0
    build, plugins = settings(args, model)
    apply_rules(build, plugins, model, args, double.sm())
    double.misbehave(SCRIPT)
    Path(args.output_timing_cache).write_bytes(b"timing")
    write_engine(Path(args.output_dir), model, build, plugins, world, is_dry=args.dry_run)
    print("Total time of building all engines: 00:00:01")


def settings(args: argparse.Namespace, model: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    plugins = {name: plugin_value(name, getattr(args, name), model["dtype"]) for name in PLUGINS}
    plugins |= {"dtype": model["dtype"], "tokens_per_block": args.tokens_per_block, "manage_weights": args.fast_build}
    kind = args.kv_cache_type or ("CONTINUOUS" if args.paged_kv_cache == "disable" else "PAGED")
    plugins["paged_kv_cache"] = kind == "PAGED"
    assert args.paged_kv_cache is None or (args.paged_kv_cache == "enable") == plugins["paged_kv_cache"]
    if model["mapping"]["world_size"] == 1:
        plugins["nccl_plugin"] = None
    block = args.tokens_per_block
    assert bin(block).count("1") == 1, "tokens_per_block must be a power of two"
    build = {
        "max_input_len": args.max_input_len,
        "max_seq_len": args.max_seq_len,
        "opt_batch_size": 8,
        "max_batch_size": args.max_batch_size,
        "max_beam_width": args.max_beam_width,
        "max_num_tokens": args.max_num_tokens,
        "opt_num_tokens": args.opt_num_tokens,
        "max_prompt_embedding_table_size": args.max_prompt_embedding_table_size,
        "kv_cache_type": kind,
        "gather_context_logits": args.gather_context_logits or args.gather_all_token_logits,
        "gather_generation_logits": args.gather_generation_logits or args.gather_all_token_logits,
        "strongly_typed": True,
        "force_num_profiles": forced_profiles(),
        "profiling_verbosity": args.profiling_verbosity,
        "enable_debug_output": args.enable_debug_output,
        "max_draft_len": args.max_draft_len,
        "speculative_decoding_mode": 1 if args.speculative_decoding_mode is None else 2,
        "use_refit": False,
        "input_timing_cache": args.input_timing_cache,
        "output_timing_cache": args.output_timing_cache,
        "lora_config": {"lora_dir": [], "lora_ckpt_source": "hf", "max_lora_rank": 64},
        "weight_sparsity": args.weight_sparsity,
        "weight_streaming": args.weight_streaming,
        "use_strip_plan": args.strip_plan,
        "max_encoder_input_len": args.max_encoder_input_len,
        "monitor_memory": args.monitor_memory,
        "use_mrope": False,
    }
    return build, plugins


def plugin_value(name: str, text: str | None, dtype: str) -> object:
    """Switches become true or false, a plugin that is off null, `auto` the model's own type."""
    if PLUGINS[name][0] == SWITCH:
        return text == "enable"
    return {"auto": dtype, "disable": None}.get(text or "", text)


def forced_profiles() -> int | None:
    forced = os.environ.get("BUILDER_FORCE_NUM_PROFILES")
    return None if forced is None else int(forced)


def apply_rules(
    build: dict[str, Any], plugins: dict[str, Any], model: dict[str, Any], args: argparse.Namespace, sm: int
) -> None:
    settle_lengths(build, plugins, model, args)
    assert not plugins["streamingllm"], "StreamingLLM is only supported in the llama model"
    assert not plugins["pp_reduce_scatter"], "PP reduce scatter is only supported in the mixtral model"
    if build["gather_context_logits"] and build["max_draft_len"]:
        raise RuntimeError("gather_context_logits with max_draft_len")
    if args.speculative_decoding_mode == "eagle":
        assert build["max_batch_size"] <= 512
        assert build["max_draft_len"] <= 256
        switch(plugins, "use_paged_context_fmha", True)
    settle_attention(plugins, model, sm)
    algo = model["quantization"]["quant_algo"]
    if 100 <= sm < 120:
        if algo in INT4_OR_INT8 or model["quantization"]["kv_cache_quant_algo"] == "INT8":
            raise RuntimeError("INT8/INT4 quantization is not supported on SM>=100.")
        if algo in ("FP8_PER_CHANNEL_PER_TOKEN", "W8A8_SQ_PER_CHANNEL"):
            raise RuntimeError("Per-channel or per-token scaling is not supported on SM>=100.")


def settle_lengths(build: dict[str, Any], plugins: dict[str, Any], model: dict[str, Any], args: Any) -> None:
    scaling = model.get("rotary_scaling") or {}
    factor = 1 if scaling.get("type") in ("su", "longrope", "llama3") else scaling.get("factor", 1)
    if build["max_seq_len"] is None:
        build["max_seq_len"] = int((model["max_position_embeddings"] or 2048) * factor)
    build["max_input_len"] = min(build["max_input_len"], build["max_seq_len"])
    build["max_num_tokens"] = min(build["max_num_tokens"], build["max_seq_len"] * build["max_batch_size"])
    build["max_num_tokens"] = max(build["max_num_tokens"], plugins["tokens_per_block"])
    if build["opt_num_tokens"] is None and not plugins["multiple_profiles"]:
        build["opt_num_tokens"] = min(build["max_batch_size"] * build["max_beam_width"], build["max_num_tokens"])
    if args.speculative_decoding_mode is not None:
        build["max_seq_len"] += build["max_draft_len"]
        build["max_num_tokens"] = max(build["max_num_tokens"], build["max_batch_size"] * (build["max_draft_len"] + 1))


def settle_attention(plugins: dict[str, Any], model: dict[str, Any], sm: int) -> None:
    algo, kv = model["quantization"]["quant_algo"], model["quantization"]["kv_cache_quant_algo"]
    paged, fp8 = "use_paged_context_fmha", "use_fp8_context_fmha"
    if not plugins["context_fmha"]:
        switch(plugins, fp8, False)
        switch(plugins, paged, False)
    elif algo not in ("FP8", "W4A8_AWQ", "NVFP4") or sm < 89:
        switch(plugins, fp8, False)
        if kv == "FP8":
            switch(plugins, paged, False)
    elif plugins[paged]:
        switch(plugins, fp8, kv == "FP8")
    if kv == "INT8":
        switch(plugins, paged, False)


def switch(plugins: dict[str, Any], name: str, value: bool) -> None:
    if plugins[name] != value:
        print(f"[TensorRT-LLM][W] Overriding {name} to {value}")
        plugins[name] = value


def write_engine(
    out: Path, model: dict[str, Any], build: dict[str, Any], plugins: dict[str, Any], world: int, *, is_dry: bool
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    is_older = os.environ.get("TRTLLM_DOUBLE_SHAPE") == "older"
    config = older(model, build, plugins) if is_older else newer(model, build, plugins)
    (out / "config.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    for rank in range(world):
        if is_dry or double.is_skipped(rank):
            continue
        name = f"{model['architecture']}_{model['dtype']}_tp{world}_rank{rank}" if is_older else f"rank{rank}"
        content = b"" if double.is_emptied(rank) else f"engine of rank {rank}\n".encode() * 64
        (out / f"{name}.engine").write_bytes(content)


def newer(model: dict[str, Any], build: dict[str, Any], plugins: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": double.version(),
        "pretrained_config": model,
        "build_config": {**build, "plugin_config": plugins},
    }


def older(model: dict[str, Any], build: dict[str, Any], plugins: dict[str, Any]) -> dict[str, Any]:
    output_len = build["max_seq_len"] - build["max_input_len"]
    return {
        "builder_config": {
            "name": model["architecture"],
            "precision": model["dtype"],
            "tensor_parallel": model["mapping"]["tp_size"],
            "pipeline_parallel": model["mapping"]["pp_size"],
            "num_layers": model["num_hidden_layers"],
            "num_heads": model["num_attention_heads"],
            "num_kv_heads": model["num_key_value_heads"],
            "hidden_size": model["hidden_size"],
            "vocab_size": model["vocab_size"],
            "max_batch_size": build["max_batch_size"],
            "max_beam_width": build["max_beam_width"],
            "max_input_len": build["max_input_len"],
            "max_output_len": output_len,
            "max_num_tokens": build["max_num_tokens"],
            "int8": False,
            "quant_mode": 0,
        },
        "plugin_config": {
            "gpt_attention_plugin": plugins["gpt_attention_plugin"],
            "gemm_plugin": plugins["gemm_plugin"],
            "paged_kv_cache": plugins["paged_kv_cache"],
            "tokens_per_block": plugins["tokens_per_block"],
            "remove_input_padding": plugins["remove_input_padding"],
            "use_paged_context_fmha": plugins["use_paged_context_fmha"],
        },
    }
