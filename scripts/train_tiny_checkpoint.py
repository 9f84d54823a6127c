#!/usr/bin/env python3
"""Make the tiny DeepSeek-V3 checkpoint that the package ships, from nothing but this repository.

About forty minutes on two idle CPU cores. The folder at --out is replaced only when the new one is complete.
Seed and thread count are fixed; rounding may still differ between processors, so another machine gives an equally good
checkpoint rather than the same bytes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tiny_checkpoint.evaluation import accuracy_by_skill, describe
from tiny_checkpoint.model import new_model, write_checkpoint
from tiny_checkpoint.skills import tokenizer_corpus
from tiny_checkpoint.tokenizer import train_tokenizer
from tiny_checkpoint.training import phases, train

SHIPPED = Path(__file__).resolve().parent.parent / "build" / "seekserve" / "data" / "tiny_deepseek_v3"
QUICK_STEPS = 6


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=SHIPPED, help="checkpoint folder to write (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=2700, help="training steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and data (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps and no measurement: a smoke test")
    parser.add_argument("--masters", type=Path, help="folder for the unquantised float32 weights after each phase")
    parser.add_argument(
        "--from-phase",
        type=int,
        default=1,
        choices=(1, 2, 3),
        help="first phase to run; later ones start from --masters",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    import torch

    options = parse_arguments(arguments)
    if options.quick and options.out == SHIPPED:
        print(f"--quick would put an untrained checkpoint at {SHIPPED}: name another folder, --out", file=sys.stderr)
        return 2
    if options.from_phase > 1 and not options.masters:
        print(f"--from-phase {options.from_phase} needs --masters, the folder of the earlier run", file=sys.stderr)
        return 2
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = train_tokenizer(tokenizer_corpus())
    model = new_model()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    for number, phase in enumerate(phases(QUICK_STEPS if options.quick else options.steps), start=1):
        if number < options.from_phase:
            continue
        if number == options.from_phase > 1:
            model.load_state_dict(torch.load(options.masters / f"phase{number - 1}.pt", weights_only=True))
        print(f"phase {number}: {phase.steps} steps", flush=True)
        train(model, tokenizer, phase, options.seed + number - 1, lambda line: print(line, flush=True))
        if options.masters:
            options.masters.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), options.masters / f"phase{number}.pt")
    put_in_place(model.state_dict(), tokenizer, options.out)
    print(f"wrote {options.out}", flush=True)
    if not options.quick:
        print(describe("float32 master weights", accuracy_by_skill(model, tokenizer)), flush=True)
        print(f"measure the shipped FP8 weights: python scripts/eval_tiny_checkpoint.py {options.out}")
    return 0


def put_in_place(state: dict[str, Any], tokenizer: Any, out: Path) -> None:
    """Write a complete sibling folder, then swap it in; the old one is removed last."""
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        write_checkpoint(state, tokenizer, fresh)
        fresh.chmod(0o755)
        for file in fresh.iterdir():
            file.chmod(0o644)
        old = fresh.with_name(f"{fresh.name}.old")
        if out.exists():
            out.rename(old)
        fresh.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
