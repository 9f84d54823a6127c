#!/usr/bin/env python3
"""Double of examples/models/core/qwen/convert_checkpoint.py."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import trtllm_tools_double as double

PRECISIONS = ["int8", "int4", "int4_gptq", "int8_gptq"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", type=str, default=None, required=True)
    double.parallel_arguments(parser)
    parser.add_argument("--cp_size", type=int, default=1)
    parser.add_argument("--dtype", type=str, default="auto", choices=["auto", *sorted(double.FLOATS)])
    parser.add_argument("--use_weight_only", action="store_true")
    parser.add_argument(
        "--weight_only_precision", const="int8", type=str, nargs="?", default="int8", choices=PRECISIONS
    )
    parser.add_argument("--disable_weight_only_quant_plugin", action="store_true")
    parser.add_argument("--per_group", action="store_true")
    parser.add_argument("--group_size", type=int, default=128)
    parser.add_argument("--smoothquant", "-sq", type=float, default=None)
    parser.add_argument("--per_channel", action="store_true")
    parser.add_argument("--per_token", action="store_true")
    parser.add_argument("--int8_kv_cache", action="store_true")
    parser.add_argument("--calib_dataset", type=str, default="ccdv/cnn_dailymail")
    parser.add_argument("--load_model_on_cpu", action="store_true")
    double.embedding_arguments(parser)
    parser.add_argument("--output_dir", type=str, default="tllm_checkpoint")
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    double.begin("convert_checkpoint")
    args = parse()
    model = double.read_model(args.model_dir)
    assert model["architectures"][0].startswith("Qwen2"), model["architectures"]
    mapping = double.mapping_of(args.tp_size, args.pp_size, args.moe_tp_size, args.moe_ep_size)
    method = (model.get("quantization_config") or {}).get("quant_method")
    algo = {"awq": "W4A16_AWQ", "gptq": "W4A16_GPTQ"}.get(method or "")
    if args.use_weight_only:
        algo = {"int8": "W8A16", "int4": "W4A16"}[args.weight_only_precision]
    kv_algo = "INT8" if args.int8_kv_cache else None
    double.misbehave("convert_checkpoint")
    dtype = double.settled_dtype(args.dtype, model)
    config = double.checkpoint_config(model, dtype, mapping, quant_algo=algo, kv_algo=kv_algo)
    double.write_checkpoint(args.output_dir, config)


if __name__ == "__main__":
    main()
