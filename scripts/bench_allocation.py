#!/usr/bin/env python
"""What it costs to give one request its KV memory: paged blocks against contiguous memory, by length.

    python scripts/bench_allocation.py [--lengths 512,2048,8192] [--pairs 15] [--kv-dtype fp8_e4m3] [--chunk-tokens 32]

Per request, on the reference engine's own classes and the layers of its model:
paged       BlockPool.take, the block table written, the first token's latents written into the pages of each layer;
reserved    torch.zeros of the whole length for each layer, the first token's latents written;
growing     contiguous memory of the prompt's length so far, made anew and copied for each chunk until all fits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import TINY, Ratio, paired
from seekserve_backend.engines.reference.blocks import BlockPool
from seekserve_backend.engines.reference.runner import ModelRunner
from seekserve_backend.engines.reference.weights import load_model

BLOCK_TOKENS = 32


def main() -> int:
    options = parse_arguments()
    import torch

    torch.set_num_threads(1)
    model = load_model(options.folder).model
    config = model.config
    row = config.kv_lora_rank + config.qk_rope_head_dim
    print(
        f"{config.num_hidden_layers} layers of {row} numbers a token, KV {options.kv_dtype}, blocks of {BLOCK_TOKENS} "
        f"tokens, {options.pairs} pairs of {options.repeats} allocations each"
    )
    medians: dict[str, dict[int, float]] = {"paged": {}, "reserved": {}, "growing": {}}
    for tokens in options.lengths:
        work = Work(model, tokens, options)
        for name, contiguous in (("reserved", work.reserved), ("growing", work.growing)):
            ratio = paired(f"{tokens} tokens, {name} over paged", contiguous, work.paged, pairs=options.pairs)
            print(ratio.line("us"))
            medians[name][tokens] = statistics.median(ratio.a)
            medians["paged"][tokens] = statistics.median(ratio.b)
        print(noise_line(tokens, work.paged, options.pairs))
    print(meaning(options.lengths[0], options.lengths[-1], medians))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=TINY, help="checkpoint whose model gives the shapes")
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=[512, 2048, 8192])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=5, help="allocations in one measurement")
    parser.add_argument("--kv-dtype", default="fp8_e4m3", choices=("fp32", "bf16", "fp8_e4m3"))
    parser.add_argument("--chunk-tokens", type=int, default=BLOCK_TOKENS, help="by how much `growing` grows")
    return parser.parse_args()


class Work:
    """Each method returns microseconds for one request of `tokens`; what it took is given back after the clock."""

    def __init__(self, model: Any, tokens: int, options: argparse.Namespace) -> None:
        import torch

        config = model.config
        self._tokens, self._chunk, self._repeats = tokens, options.chunk_tokens, options.repeats
        self._layers = config.num_hidden_layers
        self._row = config.kv_lora_rank + config.qk_rope_head_dim
        self._dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8_e4m3": torch.uint8}[options.kv_dtype]
        self._blocks = -(-tokens // BLOCK_TOKENS)
        self._pool = BlockPool(self._blocks)
        self._runner = ModelRunner(
            model,
            kv_dtype=options.kv_dtype,
            blocks=self._blocks,
            block_tokens=BLOCK_TOKENS,
            max_batch_size=1,
            max_seq_len_tokens=tokens,
        )
        self._latents = torch.randn(1, self._row)
        self._stored = torch.zeros(1, self._row, dtype=self._dtype)

    def paged(self) -> float:
        import torch

        def take() -> tuple[int, ...]:
            blocks = self._pool.take(self._blocks)
            self._runner.assign(0, blocks)
            slot = torch.tensor([blocks[0] * BLOCK_TOKENS])
            for layer in range(self._layers):
                self._runner.pages.write(layer, slot, self._latents)
            return blocks

        return self._timed(take, self._pool.give_back)

    def reserved(self) -> float:
        import torch

        def take() -> list[Any]:
            caches = [torch.zeros(self._tokens, self._row, dtype=self._dtype) for _ in range(self._layers)]
            for cache in caches:
                cache[:1] = self._stored
            return caches

        return self._timed(take, lambda caches: caches.clear())

    def growing(self) -> float:
        import torch

        def take() -> list[Any]:
            caches = [torch.zeros(0, self._row, dtype=self._dtype) for _ in range(self._layers)]
            for length in [*range(self._chunk, self._tokens, self._chunk), self._tokens]:
                for layer, old in enumerate(caches):
                    new = torch.zeros(length, self._row, dtype=self._dtype)
                    new[: len(old)] = old
                    new[len(old) : len(old) + 1] = self._stored
                    caches[layer] = new
            return caches

        return self._timed(take, lambda caches: caches.clear())

    def _timed(self, take: Callable[[], Any], give_back: Callable[[Any], None]) -> float:
        spent = 0.0
        for _ in range(self._repeats):
            started = time.perf_counter()
            held = take()
            spent += time.perf_counter() - started
            give_back(held)
        return spent / self._repeats * 1e6


def noise_line(tokens: int, paged: Callable[[], float], pairs: int) -> str:
    """The same thing against itself: a ratio inside this range means nothing."""
    same: Ratio = paired(f"{tokens} tokens, paged over paged", paged, paged, pairs=pairs)
    return f"  noise: {same.line('us')}"


def meaning(first: int, last: int, medians: dict[str, dict[int, float]]) -> str:
    slower = {name: by_length[last] / by_length[first] for name, by_length in medians.items()}
    return (
        f"From {first} to {last} tokens ({last / first:g} times as long) allocation became {slower['paged']:.1f} times "
        f"as slow paged, {slower['reserved']:.1f} times reserved and {slower['growing']:.1f} times growing: memory "
        "that grows with its request is copied again and again, so its cost runs away from the length; reserving the "
        "whole length is cheap to ask for (it is touched only later) but is held for tokens that may never come; a "
        "paged request writes a list of block numbers once."
    )


if __name__ == "__main__":
    sys.exit(main())
