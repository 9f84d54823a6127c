"""Toy bundles of the two TensorRT-LLM engine kinds: bundle.json, llm_args.yaml and files of a few bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from toy_bundle import toy_bundle

from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, BundleFile, Limits, Parallel, TrtllmSpec

ENGINE_ARGS: Mapping[str, Any] = {
    "kv_cache_config": {"free_gpu_memory_fraction": 0.85, "enable_block_reuse": True},
    "scheduler_config": {"capacity_scheduler_policy": "GUARANTEED_NO_EVICT"},
    "enable_chunked_prefill": True,
}
PYTORCH_ARGS: Mapping[str, Any] = {
    "skip_tokenizer_init": True,
    "tensor_parallel_size": 8,
    "moe_expert_parallel_size": 8,
    "max_batch_size": 128,
    "max_num_tokens": 8192,
    "max_seq_len": 9216,
    "kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.8, "tokens_per_block": 64},
    "enable_chunked_prefill": True,
    "cuda_graph_config": {"enable_padding": True},
}
_MODEL_FILES = {"trtllm-engine": "engine/config.json", "trtllm-pytorch": "weights/config.json"}


def toy_trtllm(
    engine: str = "trtllm-pytorch", version: str = "1.2.1", *, name: str = "chat", tp: int = 8, nodes: int = 1
) -> Bundle:
    """`nodes`: over which the `tp` ranks are spread."""
    is_engine = engine == "trtllm-engine"
    return dataclasses.replace(
        toy_bundle(name),
        family="deepseek_v2" if is_engine else "deepseek_v3",
        engine=engine,
        engine_version=version,
        gpu="h200",
        parallel=Parallel(tp=tp, ep=1 if is_engine else tp, gpus_per_node=tp // nodes),
        limits=Limits(max_seq_len_tokens=9216, max_batch_size=128, max_num_tokens=8192, prefill_chunk_tokens=4096),
        trtllm=TrtllmSpec(version=version, model_dir="engine" if is_engine else "weights"),
    )


def write_trtllm(
    folder: Path,
    bundle: Bundle | None = None,
    *,
    args: Mapping[str, Any] | None = None,
    paged_context: bool | None = True,
) -> Path:
    """Writes it with every file that its description lists, and returns the folder."""
    bundle = bundle or toy_trtllm()
    is_engine = bundle.engine == "trtllm-engine"
    plugins = {} if paged_context is None else {"use_paged_context_fmha": paged_context}
    config = {"version": bundle.engine_version, "build_config": {"plugin_config": plugins}} if is_engine else {}
    files = {
        "tokenizer/tokenizer.json": "{}\n",
        "llm_args.yaml": yaml.safe_dump(dict(args if args is not None else ENGINE_ARGS if is_engine else PYTORCH_ARGS)),
        _MODEL_FILES[bundle.engine]: json.dumps(config),
    }
    listed = {
        path: BundleFile(size_bytes=len(text.encode()), sha256=hashlib.sha256(text.encode()).hexdigest())
        for path, text in files.items()
    }
    for path, text in {**files, BUNDLE_FILE: dataclasses.replace(bundle, files=listed).to_json()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def write_stock_model(folder: Path, *, model: str = "gpu_device_ids", config: str | None = None) -> Path:
    """What an image holds for the llmapi model, as far as reading it goes."""
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(f"# {model}\nclass TritonPythonModel:\n    pass\n", encoding="utf-8")
    (folder / "1" / "helpers.py").write_text("def get():\n    pass\n", encoding="utf-8")
    (folder / "1" / "model.yaml").write_text("model: theirs\n", encoding="utf-8")
    if config is not None:
        (folder / "config.pbtxt").write_text(config, encoding="utf-8")
    return folder
