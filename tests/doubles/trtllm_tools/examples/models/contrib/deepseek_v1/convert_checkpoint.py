#!/usr/bin/env python3
"""Double of examples/models/contrib/deepseek_v1/convert_checkpoint.py."""

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
    parser.add_argument("--dtype", type=str, default="auto", choices=["auto", *sorted(double.FLOATS)])
    double.embedding_arguments(parser)
    parser.add_argument("--output_dir", type=str, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--moe_num_experts", type=int, default=0)
    parser.add_argument("--moe_top_k", type=int, default=0)
    parser.add_argument("--moe_renorm_mode", type=int, default=1)
    parser.add_argument("--save_config_only", action="store_true")
    parser.add_argument("--disable_weight_only_quant_plugin", action="store_true")
    return parser.parse_args()


def main() -> None:
    double.begin("convert_checkpoint")
    args = parse()
    model = double.read_model(args.model_dir)
    assert model["architectures"][0] == "DeepseekForCausalLM", model["architectures"]
    mapping = double.mapping_of(args.tp_size, args.pp_size, args.moe_tp_size, args.moe_ep_size)
    experts = {
        "num_experts": model["n_routed_experts"],
        "shared_expert_intermediate_size": model["n_shared_experts"] * model["moe_intermediate_size"],
        "top_k": model["num_experts_per_tok"],
        "normalization_mode": model.get("moe_normalization_mode", 0),
        "sparse_mixer_epsilon": 0.01,
        "tp_mode": 0,
    }
    more = {
        "moe": experts,
        "moe_intermediate_size": model["moe_intermediate_size"],
        "disable_weight_only_quant_plugin": args.disable_weight_only_quant_plugin,
    }
    double.misbehave("convert_checkpoint")
    dtype = double.settled_dtype(args.dtype, model)
    double.write_checkpoint(args.output_dir, double.checkpoint_config(model, dtype, mapping, more=more))


if __name__ == "__main__":
    main()
