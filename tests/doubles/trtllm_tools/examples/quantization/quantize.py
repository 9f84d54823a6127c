#!/usr/bin/env python3
"""Double of examples/quantization/quantize.py."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import trtllm_tools_double as double

FORMATS = {
    "nvfp4": "NVFP4",
    "fp8": "FP8",
    "fp8_pc_pt": "FP8_PER_CHANNEL_PER_TOKEN",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
    "int4_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "int8_wo": "W8A16",
    "int4_wo": "W4A16",
    "full_prec": None,
}
KNOWN = ("deepseekforcausallm", "qwen", "llama")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", default=None)
    parser.add_argument("--nemo_ckpt_path", default=None)
    parser.add_argument("--decoder_type", type=str, default="gptnext")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--device_map", default="auto", choices=["auto", "sequential", "cpu", "gpu"])
    parser.add_argument("--calib_dataset", type=str, default="cnn_dailymail")
    parser.add_argument("--calib_tp_size", type=int, default=1)
    parser.add_argument("--calib_pp_size", type=int, default=1)
    parser.add_argument("--dtype", default="auto", choices=["auto", *sorted(double.FLOATS)])
    parser.add_argument("--qformat", default="full_prec", choices=list(FORMATS))
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--tokenizer_max_seq_length", type=int, default=2048)
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--calib_size", type=int, default=512)
    parser.add_argument("--calib_max_seq_length", type=int, default=512)
    parser.add_argument("--output_dir", default="exported_model")
    double.parallel_arguments(parser, experts=False)
    parser.add_argument("--cp_size", type=int, default=1)
    parser.add_argument("--awq_block_size", type=int, default=128)
    parser.add_argument("--kv_cache_dtype", default=None, choices=["int8", "fp8", None])
    parser.add_argument("--quantize_lm_head", action="store_true")
    parser.add_argument("--autoq_format", default=None)
    parser.add_argument("--auto_quantize_bits", type=float, default=None)
    return parser.parse_args()


def main() -> None:
    double.begin("quantize")
    args = parse()
    if args.model_dir is None:
        raise ValueError("one source of weights is needed")
    if "cnn_dailymail" not in args.calib_dataset and not Path(args.calib_dataset).is_dir():
        raise NotImplementedError(args.calib_dataset)
    model = double.read_model(args.model_dir)
    name = model["architectures"][0]
    least = {"fp8": 89, "fp8_pc_pt": 89, "w4a8_awq": 89, "nvfp4": 100}.get(args.qformat, 0)
    assert double.sm() >= least, f"{args.qformat} on SM{double.sm()}"
    double.misbehave("quantize")
    if not any(known in name.lower() for known in KNOWN):
        print(f"unknown model type {name}: exported nothing")
        return
    mapping = double.mapping_of(args.tp_size, args.pp_size)
    kv_algo = {"fp8": "FP8", "int8": "INT8"}.get(args.kv_cache_dtype or "")
    dtype = double.settled_dtype(args.dtype, model)
    config = double.checkpoint_config(model, dtype, mapping, quant_algo=FORMATS[args.qformat], kv_algo=kv_algo)
    double.write_checkpoint(args.output_dir, config)


if __name__ == "__main__":
    main()
