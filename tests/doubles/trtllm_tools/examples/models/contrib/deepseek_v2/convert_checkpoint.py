#!/usr/bin/env python3
"""Double of examples/models/contrib/deepseek_v2/convert_checkpoint.py."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import trtllm_tools_double as double


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", type=str, required=True)
    double.parallel_arguments(parser)
    parser.add_argument("--dtype", type=str, default="float16", choices=list(double.FLOATS))
    parser.add_argument("--load_model_on_cpu", action="store_true")
    double.embedding_arguments(parser)
    parser.add_argument("--output_dir", type=str, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--moe_num_experts", type=int, default=0)
    parser.add_argument("--moe_top_k", type=int, default=0)
    parser.add_argument("--moe_renorm_mode", type=int, default=1)
    parser.add_argument("--use_preloading", action="store_true")
    parser.add_argument("--use_safetensors_loading", action="store_true")
    parser.add_argument("--save_config_only", action="store_true")
    parser.add_argument("--disable_weight_only_quant_plugin", action="store_true")
    return parser.parse_args()


def main() -> None:
    double.begin("convert_checkpoint")
    args = parse()
    model = double.read_model(args.model_dir)
    assert model["topk_method"] in ("greedy", "group_limited_greedy"), model["topk_method"]
    assert model["routed_scaling_factor"] > 0
    assert model["topk_method"] != "greedy" or model["routed_scaling_factor"] == 1.0
    mapping = double.mapping_of(args.tp_size, args.pp_size, args.moe_tp_size, args.moe_ep_size)
    scaling = model["rope_scaling"]
    names = ("beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim", "original_max_position_embeddings", "type")
    more = {
        "rotary_scaling": {name: scaling[name] for name in names},
        "moe": {"num_experts": model["n_routed_experts"], "top_k": model["num_experts_per_tok"]},
        "moe_inter_size": model["moe_intermediate_size"],
        "kv_lora_rank": model["kv_lora_rank"],
        "q_lora_rank": model["q_lora_rank"],
        "qk_nope_head_dim": model["qk_nope_head_dim"],
        "qk_rope_head_dim": model["qk_rope_head_dim"],
        "v_head_dim": model["v_head_dim"],
        "topk_method": model["topk_method"],
        "load_model_on_cpu": args.load_model_on_cpu,
    }
    double.misbehave("convert_checkpoint")
    dtype = "float16" if args.dtype == "float32" or (args.dtype == "bfloat16" and double.sm() < 80) else args.dtype
    double.write_checkpoint(args.output_dir, double.checkpoint_config(model, dtype, mapping, more=more))


if __name__ == "__main__":
    main()
