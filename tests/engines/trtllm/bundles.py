"""Bundles for TensorRT-LLM in a few hundred bytes, engines made of them on the double, and a loop around `step`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from seekserve_backend.contract.bundle import Bundle, KvCache, Limits, Parallel, Retention, TrtllmSpec
from seekserve_backend.engines.port import EndEvent, EngineRequest, EngineStepReport, TokenEvent
from seekserve_backend.engines.trtllm.engine import TrtllmEngine

EOS = 1
BLOCK_TOKENS = 8
BLOCKS = 64
LIMITS = Limits(max_seq_len_tokens=128, max_batch_size=4, max_num_tokens=64, prefill_chunk_tokens=64)
KV = KvCache(dtype="bf16", block_tokens=BLOCK_TOKENS, capacity_blocks=BLOCKS, bytes_per_token=64)
TORCH_ARGS: Mapping[str, Any] = {
    "max_batch_size": LIMITS.max_batch_size,
    "max_num_tokens": LIMITS.max_num_tokens,
    "max_seq_len": LIMITS.max_seq_len_tokens,
    "enable_chunked_prefill": True,
    "enable_iter_perf_stats": True,
    "kv_cache_config": {"tokens_per_block": BLOCK_TOKENS, "max_tokens": BLOCK_TOKENS * BLOCKS},
}
MODEL = {"max_position_embeddings": 512, "vocab_size": 1000, "eos_token_id": 2}
GENERATION = {"eos_token_id": [EOS, 3]}


def write_bundle(
    folder: Path,
    version: str,
    *,
    engine: str = "trtllm-pytorch",
    beams: int = 1,
    retention: Retention | None = None,
    start_timeout_s: float = 20.0,
    parallel: Parallel | None = None,
    kv: KvCache = KV,
    **args: Any,
) -> Bundle:
    """Writes the model's folder and llm_args.yaml (JSON is YAML); returns what bundle.json would say."""
    model_dir = "engine" if engine == "trtllm-engine" else "weights"
    (folder / model_dir).mkdir(parents=True)
    if engine == "trtllm-engine":
        write_engine_folder(folder, version, beams)
        whole: dict[str, Any] = {"kv_cache_config": {"max_tokens": BLOCK_TOKENS * BLOCKS}, **args}
    else:
        (folder / "weights" / "config.json").write_text(json.dumps(MODEL))
        (folder / "weights" / "generation_config.json").write_text(json.dumps(GENERATION))
        (folder / "weights" / "model.safetensors").touch()
        whole = {**TORCH_ARGS, **({"max_beam_width": beams} if beams > 1 else {}), **args}
    (folder / "llm_args.yaml").write_text(json.dumps(whole))
    return Bundle(
        name="toy",
        family="deepseek_v3",
        engine=engine,
        toolkit_version="0",
        engine_version=f"TensorRT-LLM {version}",
        gpu="h200",
        parallel=parallel or Parallel(),
        weights_dtype="fp8_block",
        weights_bytes=1,
        limits=LIMITS,
        kv=kv,
        step_model=None,
        sources={},
        files={},
        trtllm=TrtllmSpec(
            version=version,
            model_dir=model_dir,
            max_beam_width=beams,
            retention=retention,
            start_timeout_s=start_timeout_s,
        ),
    )


def write_engine_folder(folder: Path, version: str, beams: int) -> None:
    build = {
        "max_seq_len": LIMITS.max_seq_len_tokens,
        "max_batch_size": LIMITS.max_batch_size,
        "max_num_tokens": LIMITS.max_num_tokens,
        "max_beam_width": beams,
        "plugin_config": {"tokens_per_block": BLOCK_TOKENS},
    }
    mapping = {"tp_size": 1, "pp_size": 1, "cp_size": 1}
    config = {"version": version, "build_config": build, "pretrained_config": {"vocab_size": 1000, "mapping": mapping}}
    (folder / "engine" / "config.json").write_text(json.dumps(config))
    (folder / "engine" / "rank0.engine").touch()
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    added = [{"id": 0, "content": "<begin>"}, {"id": EOS, "content": "<end>"}]
    (folder / "tokenizer" / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))


def request(id: str = "a", prompt: Iterable[int] = (10, 11, 12), max_tokens: int = 20, **fields: Any) -> EngineRequest:
    return EngineRequest(id=id, prompt_ids=tuple(prompt), max_tokens=max_tokens, **fields)


class Run:
    """Steps an engine and keeps what each request got."""

    def __init__(self, engine: TrtllmEngine) -> None:
        self.engine = engine
        self.reports: list[EngineStepReport] = []
        self.events: dict[str, list[TokenEvent]] = {}
        self.ends: dict[str, EndEvent] = {}

    def add(self, *requests: EngineRequest) -> Run:
        for each in requests:
            self.engine.add(each)
        return self

    def step(self) -> EngineStepReport:
        report = self.engine.step(0.05)
        self.reports.append(report)
        for event in report.tokens:
            assert event.id not in self.ends, "tokens after the end"
            self.events.setdefault(event.id, []).append(event)
        for end in report.ends:
            assert end.id not in self.ends, "two ends"
            self.ends[end.id] = end
        return report

    def until(self, is_done: Callable[[], bool]) -> Run:
        deadline = time.monotonic() + 20
        while not is_done():
            assert time.monotonic() < deadline, f"still waiting; ends: {self.ends}"
            self.step()
        return self

    def until_ended(self, *ids: str) -> Run:
        return self.until(lambda: all(id in self.ends for id in ids))

    def tokens(self, id: str = "a") -> list[int]:
        return [token for event in self.events.get(id, ()) for token in event.token_ids]

    def logprobs(self, id: str = "a") -> list[float]:
        return [number for event in self.events.get(id, ()) for number in event.logprobs]


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline, "it never came true"
        threading.Event().wait(0.01)
