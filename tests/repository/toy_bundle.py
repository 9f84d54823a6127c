"""A whole toy bundle in a few hundred bytes, for tests of what reads bundles."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, BundleFile, KvCache, Limits, Parallel

FILES = {
    "weights/config.json": "{}\n",
    "weights/model-00001-of-00002.safetensors": "first",
    "weights/model-00002-of-00002.safetensors": "second",
    "tokenizer/tokenizer.json": "{}\n",
}


def toy_bundle(name: str = "chat", files: Mapping[str, str] = FILES) -> Bundle:
    return Bundle(
        name=name,
        family="deepseek_v3",
        engine="reference",
        toolkit_version="0.1.0",
        engine_version="5.24.0",
        gpu=None,
        parallel=Parallel(),
        weights_dtype="fp8_block",
        weights_bytes=11,
        limits=Limits(max_seq_len_tokens=2048, max_batch_size=16, max_num_tokens=512, prefill_chunk_tokens=256),
        kv=KvCache(dtype="fp8_e4m3", block_tokens=32, capacity_blocks=1024, bytes_per_token=320),
        step_model=None,
        sources={"limits.max_batch_size": "default"},
        files={
            path: BundleFile(size_bytes=len(text.encode()), sha256=hashlib.sha256(text.encode()).hexdigest())
            for path, text in files.items()
        },
    )


def write_bundle(folder: Path, bundle: Bundle | None = None) -> Path:
    """Writes the toy bundle and returns its folder."""
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    (folder / BUNDLE_FILE).write_text((bundle or toy_bundle()).to_json(), encoding="utf-8")
    return folder
