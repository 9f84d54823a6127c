#!/usr/bin/env python3
"""Measure the tiny checkpoint: all 10,000 two-digit sums and the other skills, greedily, exact answers only.

Precisions: `float32` multiplies the FP8 weights out and computes in float32; `bf16` does both in bf16, as the
reference engine does; `fp8` is bf16 with the KV latents rounded to e4m3 as well, as FP8 cache pages do.
With --master, the unquantised weights of the training run are measured first and the difference is printed.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tiny_checkpoint.evaluation import Accuracy, accuracy_by_skill, describe
from tiny_checkpoint.model import cast, load_model, new_model
from tiny_checkpoint.tasks import write_tasks
from tiny_checkpoint.training import latents_as_served

PRECISIONS = ("float32", "bf16", "fp8")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16", help="default: %(default)s")
    parser.add_argument("--master", type=Path, help="phase3.pt written by train_tiny_checkpoint.py --masters")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument(
        "--write-tasks", type=Path, metavar="FOLDER", help="write the questions as JSON Lines, measure nothing"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    import torch
    from tokenizers import Tokenizer

    options = parse_arguments(arguments)
    if options.write_tasks:
        write_tasks(options.write_tasks)
        return 0
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.from_file(str(options.checkpoint / "tokenizer.json"))
    dtype = torch.float32 if options.precision == "float32" else torch.bfloat16
    master: Accuracy = {}
    if options.master:
        model = new_model()
        model.load_state_dict(torch.load(options.master, weights_only=True))
        master = measure("master", cast(model, dtype), tokenizer, "float32")
    shipped = measure(options.precision, load_model(options.checkpoint, dtype), tokenizer, options.precision)
    for skill, (right, asked) in master.items():
        print(f"{skill}: shipped minus master {100 * (shipped[skill][0] - right) / asked:+.2f} points")
    return 0


def measure(title: str, model: Any, tokenizer: Any, precision: str) -> Accuracy:
    started = time.monotonic()
    with latents_as_served(model) if precision == "fp8" else nullcontext():
        accuracy = accuracy_by_skill(model, tokenizer)
    print(describe(f"{title} ({time.monotonic() - started:.0f} s)", accuracy), flush=True)
    return accuracy


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
