#!/usr/bin/env python
"""The reference engine at 16 concurrent requests against one-at-a-time `generate` with the same weights.

    python scripts/bench_reference_engine.py [CHECKPOINT_OR_BUNDLE] [--pairs 5] [--concurrency 16] [--threads 1]

Prints tokens/s of both, pair by pair, and whether the KV blocks are all free after many short requests.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import TINY, paired
from seekserve_backend.contract.bundle import BUNDLE_FILE, KvCache, Limits
from seekserve_backend.engines.port import EndReason, EngineRequest
from seekserve_backend.engines.reference.engine import ReferenceEngine
from seekserve_backend.engines.reference.weights import load_model

BLOCK_TOKENS = 32


def main() -> int:
    options = parse_arguments()
    import torch

    torch.set_num_threads(options.threads)
    folder: Path = options.folder
    weights = folder / "weights" if (folder / BUNDLE_FILE).is_file() else folder
    # Each side gets its own copy with the settings that suit it, so that neither runs with the other's.
    engine_model = load_model(weights, compute_dtype=options.dtype)
    plain_model = load_model(weights, compute_dtype=options.dtype, attention="sdpa", experts="eager").model
    engine = make_engine(engine_model.model, options)
    rng = random.Random(1)
    prompts = [
        [rng.randrange(3, engine.info.vocab_size) for _ in range(options.prompt_tokens)]
        for _ in range(options.concurrency)
    ]
    ratio = paired(
        "engine over generate",
        lambda: engine_tokens_per_s(engine, prompts, options.output_tokens),
        lambda: generate_tokens_per_s(plain_model, prompts, options.output_tokens),
        pairs=options.pairs,
    )
    print(
        f"{options.concurrency} requests of {options.prompt_tokens} + {options.output_tokens} tokens, {options.dtype}, "
        f"KV {options.kv_dtype}, {options.threads} thread(s)"
    )
    print(ratio.line("tokens/s"))
    free, total = blocks_after_many(engine, options.short_requests)
    print(f"KV blocks after {options.short_requests} short requests: {total - free} of {total} in use")
    return 0 if free == total and ratio.median >= options.at_least else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=TINY, help="checkpoint or bundle")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=24)
    parser.add_argument("--output-tokens", type=int, default=48)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--kv-dtype", default="fp8_e4m3", choices=("fp32", "bf16", "fp8_e4m3"))
    parser.add_argument("--threads", type=int, default=1, help="torch threads of both sides")
    parser.add_argument("--short-requests", type=int, default=1000)
    parser.add_argument("--at-least", type=float, default=4.0, help="exit 1 below this median ratio")
    return parser.parse_args()


def make_engine(model: Any, options: argparse.Namespace) -> ReferenceEngine:
    tokens = max(options.prompt_tokens + options.output_tokens, 64)
    kv = KvCache(dtype=options.kv_dtype, block_tokens=BLOCK_TOKENS, capacity_blocks=1, bytes_per_token=1)
    blocks = kv.blocks_for(tokens) * options.concurrency
    return ReferenceEngine.of_model(
        model,
        eos_ids=(),
        limits=Limits(
            max_seq_len_tokens=tokens, max_batch_size=options.concurrency, max_num_tokens=512, prefill_chunk_tokens=256
        ),
        kv=KvCache(dtype=options.kv_dtype, block_tokens=BLOCK_TOKENS, capacity_blocks=blocks, bytes_per_token=1),
    )


def engine_tokens_per_s(engine: ReferenceEngine, prompts: list[list[int]], output_tokens: int) -> float:
    started, tokens = time.perf_counter(), 0
    for n, prompt in enumerate(prompts):
        engine.add(EngineRequest(id=str(n), prompt_ids=tuple(prompt), max_tokens=output_tokens))
    while engine.stats().running:
        tokens += sum(len(event.token_ids) for event in engine.step(0.0).tokens)
    return check(tokens, prompts, output_tokens) / (time.perf_counter() - started)


def generate_tokens_per_s(model: Any, prompts: list[list[int]], output_tokens: int) -> float:
    import torch

    # No end-of-sequence id, so that both sides produce the same number of tokens.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    started, tokens = time.perf_counter(), 0
    for prompt in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=output_tokens, do_sample=False)
        tokens += out.shape[1] - len(prompt)
    return check(tokens, prompts, output_tokens) / (time.perf_counter() - started)


def check(tokens: int, prompts: list[list[int]], output_tokens: int) -> int:
    if tokens != len(prompts) * output_tokens:
        raise SystemExit(f"{tokens} tokens produced, {len(prompts) * output_tokens} expected")
    return tokens


def blocks_after_many(engine: ReferenceEngine, requests: int) -> tuple[int, int]:
    """Free and total blocks after requests of 1 to 12 + 1 to 5 tokens, every tenth cancelled."""
    rng = random.Random(2)
    ends: list[EndReason] = []
    added = 0
    while len(ends) < requests:
        while added < requests:
            prompt = tuple(rng.randrange(3, engine.info.vocab_size) for _ in range(rng.randint(1, 12)))
            request = EngineRequest(id=str(added), prompt_ids=prompt, max_tokens=rng.randint(1, 5))
            if not engine.can_add(request):
                break
            engine.add(request)
            if added % 10 == 0:
                engine.cancel(request.id)
            added += 1
        ends.extend(end.reason for end in engine.step(0.0).ends)
        engine.check_integrity()
    stats = engine.stats()
    return stats.kv_free_blocks, stats.kv_total_blocks


if __name__ == "__main__":
    sys.exit(main())
