"""What the scripts of this double share: being told to fail or hang, reading a model, writing a checkpoint for a build.

Standard library only, and nothing of seekserve: shapes and asserts are those of TensorRT-LLM's public sources, so that
a mistake in our tables shows here. Variables:

    TRTLLM_DOUBLE_FAIL     name of the script (`convert_checkpoint`, `quantize`, `trtllm-build`) that shall fail
    TRTLLM_DOUBLE_HANG     name of the one that shall hang; it writes its pids to the FIFO TRTLLM_DOUBLE_PIDS first
    TRTLLM_DOUBLE_CALLS    file that gets one JSON line for each start: script and arguments
    TRTLLM_DOUBLE_SM       compute capability x 10 of the GPU (90)
    TRTLLM_DOUBLE_VERSION  version that the engine states (1.2.1)
    TRTLLM_DOUBLE_SHAPE    `older`: config.json as builders before 0.8 wrote it
    TRTLLM_DOUBLE_EMPTY    rank whose engine file shall be empty
    TRTLLM_DOUBLE_MISSING  rank whose file shall not be written
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GROUP_SIZE = 128
FLOATS = ("float32", "bfloat16", "float16")


def begin(script: str) -> None:
    """Called first thing by every script."""
    calls = os.environ.get("TRTLLM_DOUBLE_CALLS")
    if calls:
        with Path(calls).open("a", encoding="utf-8") as file:
            file.write(json.dumps([script, *sys.argv[1:]]) + "\n")
    print(f"[TensorRT-LLM] TensorRT-LLM version: {version()}")


def misbehave(script: str) -> None:
    """Called after the arguments were read and before anything is written to the end."""
    if os.environ.get("TRTLLM_DOUBLE_HANG") == script:
        worker = subprocess.Popen([sys.executable, "-c", "import time\ntime.sleep(600)"])
        with Path(os.environ["TRTLLM_DOUBLE_PIDS"]).open("w", encoding="utf-8") as fifo:
            fifo.write(f"{os.getpid()} {worker.pid}")
        time.sleep(600)
    if os.environ.get("TRTLLM_DOUBLE_FAIL") == script:
        raise RuntimeError(f"{script} was told to fail: CUDA out of memory")


def version() -> str:
    return os.environ.get("TRTLLM_DOUBLE_VERSION", "1.2.1")


def sm() -> int:
    return int(os.environ.get("TRTLLM_DOUBLE_SM", "90"))


def is_skipped(rank: int) -> bool:
    return os.environ.get("TRTLLM_DOUBLE_MISSING") == str(rank)


def is_emptied(rank: int) -> bool:
    return os.environ.get("TRTLLM_DOUBLE_EMPTY") == str(rank)


def parallel_arguments(parser: argparse.ArgumentParser, *, experts: bool = True) -> None:
    parser.add_argument("--tp_size", type=int, default=1)
    parser.add_argument("--pp_size", type=int, default=1)
    if experts:
        parser.add_argument("--moe_tp_size", type=int, default=-1)
        parser.add_argument("--moe_ep_size", type=int, default=-1)


def embedding_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--use_parallel_embedding", action="store_true")
    parser.add_argument("--embedding_sharding_dim", type=int, default=0, choices=[0, 1])


def mapping_of(tp: int, pp: int, moe_tp: int = -1, moe_ep: int = -1) -> dict[str, int]:
    """One size given decides the other; both together must be the tensor parallel size."""
    if moe_tp == -1 and moe_ep == -1:
        moe_tp, moe_ep = tp, 1
    elif moe_tp == -1:
        moe_tp = tp // moe_ep
    elif moe_ep == -1:
        moe_ep = tp // moe_tp
    assert moe_tp * moe_ep == tp, f"tp_size must equal to moe_tp_size * moe_ep_size, but got {tp} != {moe_tp}*{moe_ep}"
    return {
        "world_size": tp * pp,
        "gpus_per_node": 8,
        "cp_size": 1,
        "tp_size": tp,
        "pp_size": pp,
        "moe_tp_size": moe_tp,
        "moe_ep_size": moe_ep,
    }


def read_model(folder: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    return data


def checkpoint_config(
    model: dict[str, Any],
    dtype: str,
    mapping: dict[str, int],
    *,
    quant_algo: str | None = None,
    kv_algo: str | None = None,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    heads = model["num_attention_heads"]
    return {
        "architecture": model["architectures"][0],
        "dtype": dtype,
        "vocab_size": model["vocab_size"],
        "hidden_size": model["hidden_size"],
        "num_hidden_layers": model["num_hidden_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": model.get("num_key_value_heads", heads),
        "hidden_act": "swiglu",
        "intermediate_size": model["intermediate_size"],
        "norm_epsilon": model.get("rms_norm_eps", 1e-6),
        "logits_dtype": "float32",
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": model["max_position_embeddings"],
        "head_size": model["hidden_size"] // heads,
        "rotary_base": model.get("rope_theta", 10000.0),
        "rotary_scaling": model.get("rope_scaling"),
        "qk_layernorm": False,
        "use_parallel_embedding": False,
        "embedding_sharding_dim": 0,
        "runtime_defaults": None,
        "mapping": mapping,
        "quantization": {
            "quant_algo": quant_algo,
            "kv_cache_quant_algo": kv_algo,
            "group_size": GROUP_SIZE,
            "smoothquant_val": 0.5,
            "clamp_val": None,
            "use_meta_recipe": False,
            "has_zero_point": False,
            "pre_quant_scale": False,
            "exclude_modules": None,
        },
        **(more or {}),
    }


def write_checkpoint(folder: str, config: dict[str, Any]) -> None:
    """config.json is written for rank 0 alone, weights for every rank."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    for rank in range(config["mapping"]["world_size"]):
        if not is_skipped(rank):
            (out / f"rank{rank}.safetensors").write_bytes(tiny_safetensors())
    print("Total time of converting checkpoints: 00:00:01")


def tiny_safetensors() -> bytes:
    header = json.dumps({"lm_head.weight": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


def settled_dtype(asked: str, model: dict[str, Any]) -> str:
    """`auto` takes the model's own, and float16 for a model in float32."""
    if asked != "auto":
        return asked
    own = str(model.get("torch_dtype") or "float16")
    return "float16" if own == "float32" else own
