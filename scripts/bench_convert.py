#!/usr/bin/env python3
"""Speed of `seekserve convert` from bf16 to FP8: the kernel, and the whole conversion with reading and writing.

Kernel: the shipped kernels, a ten-line eager torch loop over 128-row blocks and the naive whole-tensor formula, in turn
in one run, rows split over the same threads for every side, and required to agree bit by bit. Whole: `convert` against
reading as many bytes as it reads and writing, with fsync, as many as it writes. Ratios are taken pair by pair.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import pad

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from seekserve.convert import ConvertRequest, convert  # noqa: E402
from seekserve.convert.formula import quantise_exactly  # noqa: E402
from seekserve.convert.kernel import TorchQuantiser  # noqa: E402
from seekserve.convert.native import NativeQuantiser, load_library  # noqa: E402
from seekserve.convert.plan import plan_conversion  # noqa: E402

KERNEL_TARGET = 1.5
WHOLE_TARGET = 1.5
SHAPES = ((2048, 7168), (7168, 2048), (24576, 1536), (576, 7168))  # expert gate/up, expert down, q_b, kv_a of V3
CHUNK_BYTES = 4 * 1024 * 1024


def eager_loop(weight: Any) -> tuple[Any, Any]:
    """What one writes in ten lines: eager torch, 128 rows at a time."""
    rows, columns = weight.shape
    codes = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
    scales = torch.empty(-(-rows // 128), -(-columns // 128))
    for i in range(0, rows, 128):
        wide = pad(weight[i : i + 128].float(), (0, -columns % 128)).view(-1, scales.shape[1], 128)
        scale = wide.abs().amax(dim=(0, 2)) / 448.0
        scale = torch.where(scale == 0, 1.0, scale)
        codes[i : i + 128] = (wide / scale[:, None]).to(torch.float8_e4m3fn).view(-1, wide.shape[1] * 128)[:, :columns]
        scales[i // 128] = scale
    return codes.view(torch.uint8), scales


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each comparison (default: %(default)s)")
    parser.add_argument("--megabytes", type=int, default=512, help="size of the checkpoint (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads for every side (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where to make the files (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # rows are split by hand: torch's own threads spin while another process has the core
    kernels = {"torch": TorchQuantiser, **({"native": _native} if load_library() else {})}
    kernel_figures = [measure_kernels(shape, kernels, options) for shape in SHAPES]
    with tempfile.TemporaryDirectory(prefix="seekserve-bench-", dir=options.folder) as folder:
        whole = measure_whole(Path(folder), list(kernels.values())[-1], options)
    best = "native" if "native" in kernels else "torch"
    result = {
        "threads": options.threads,
        "rounds": options.rounds,
        "kernels": kernel_figures,
        "whole": whole,
        "kernel_ratio": min(figures["times_eager"][best] for figures in kernel_figures),
        "whole_ratio": whole["ratio"],
        "peak_memory_mb": whole["peak_memory_mb"],
    }
    result["is_within_targets"] = result["kernel_ratio"] >= KERNEL_TARGET and result["whole_ratio"] <= WHOLE_TARGET
    print(json.dumps(result, indent=2) if options.json else describe(result))
    return 0 if result["is_within_targets"] else 1


def _native() -> NativeQuantiser:
    library = load_library()
    assert library is not None
    return NativeQuantiser(library)


def measure_kernels(shape: tuple[int, int], kernels: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each side, round by round; the outputs of all must be equal."""
    weight = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 0.02).to(torch.bfloat16)
    with ThreadPoolExecutor(options.threads) as pool:
        makers = {"eager": lambda: filling(eager_loop), "naive": lambda: filling(quantise_exactly), **kernels}
        sides: dict[str, Callable[[], tuple[Any, Any]]] = {}
        for name, make in makers.items():
            mine = [make() for _ in range(options.threads)]
            sides[name] = lambda mine=mine: split(weight, mine, pool)
        right = quantise_exactly(weight)
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(options.rounds + 1):
            for name, side in sides.items():
                begun = time.perf_counter()
                codes, scales = side()
                elapsed = time.perf_counter() - begun
                if not (torch.equal(codes, right[0]) and torch.equal(scales, right[1])):
                    raise SystemExit(f"{name} differs from the formula for {shape}")
                if number:  # the first round warms up
                    seconds[name].append(elapsed)
    return {
        "shape": list(shape),
        "ns_per_element": {n: round(statistics.median(s) / weight.numel() * 1e9, 3) for n, s in seconds.items()},
        "times_eager": {n: round(paired_ratio(seconds["eager"], seconds[n]), 2) for n in seconds},
    }


def filling(function: Callable[[Any], tuple[Any, Any]]) -> Callable[[Any, Any, Any], None]:
    """A function with results in the form of a kernel."""

    def run(weight: Any, codes: Any, scales: Any) -> None:
        mine, my_scales = function(weight)
        codes.copy_(mine)
        scales.copy_(my_scales)

    return run


def split(weight: Any, kernels: list[Any], pool: ThreadPoolExecutor) -> tuple[Any, Any]:
    """One tensor over the threads, in whole panels, as several tensors are in a conversion."""
    rows, columns = weight.shape
    codes = torch.empty(rows, columns, dtype=torch.uint8)
    scales = torch.empty(-(-rows // 128), -(-columns // 128))
    step = -(-scales.shape[0] // len(kernels))

    def run(number: int) -> None:
        part, panels = slice(128 * step * number, 128 * step * (number + 1)), slice(step * number, step * (number + 1))
        if weight[part].shape[0]:
            kernels[number](weight[part], codes[part], scales[panels])

    list(pool.map(run, range(len(kernels))))
    return codes, scales


def paired_ratio(theirs: list[float], ours: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def measure_whole(folder: Path, kernel: Any, options: argparse.Namespace) -> dict[str, Any]:
    source = make_checkpoint(folder / "source", options.megabytes)
    times: dict[str, list[float]] = {"convert": [], "plain": []}
    out = folder / "out"
    request = ConvertRequest(checkpoint=str(source), out=out, target="fp8-block", workers=options.threads)
    plan = plan_conversion(source, "fp8-block")
    sides: dict[str, Callable[[], object]] = {
        "convert": lambda: convert(request, memory_free_bytes=2**40, kernel=kernel),
        "plain": lambda: read_and_write(source, out, plan),
    }
    for number in range(options.rounds + 1):
        # each side goes first in every other round; the first round warms up
        for name in sorted(sides, reverse=bool(number % 2)):
            begun = time.perf_counter()
            sides[name]()
            if number:
                times[name].append(time.perf_counter() - begun)
            shutil.rmtree(out)
    return {
        "read_bytes": plan.source_bytes,
        "written_bytes": plan.output_bytes,
        "convert_s": round(statistics.median(times["convert"]), 3),
        "plain_s": round(statistics.median(times["plain"]), 3),
        "ratio": round(paired_ratio(times["convert"], times["plain"]), 2),
        "peak_memory_mb": peak_memory_mb(source, out, options.threads),
        "rounds": [[round(a, 3), round(b, 3)] for a, b in zip(times["convert"], times["plain"], strict=True)],
    }


def peak_memory_mb(source: Path, out: Path, threads: int) -> float:
    """Of a process that does nothing but convert."""
    arguments = ["convert", str(source), str(out), "--to", "fp8-block", "--workers", str(threads)]
    program = (
        "import sys; from pathlib import Path; from seekserve.cli import cli\n"
        "cli.main(sys.argv[1:], standalone_mode=False)\n"
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True)
    shutil.rmtree(out)
    return round(int(done.stdout.splitlines()[-1]) / 1024, 1)


def read_and_write(source: Path, out: Path, plan: Any) -> None:
    """The same bytes in and out, shard by shard, through one buffer, put to disk as a conversion puts them."""
    out.mkdir()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    for shard in plan.shards:
        with (source / shard.file).open("rb", buffering=0) as incoming, (out / shard.file).open("wb", 0) as outgoing:
            left = shard.size_bytes
            while count := incoming.readinto(buffer):
                # written as it is read, until there is as much as a conversion writes
                left -= outgoing.write(buffer[: min(count, left)]) if left else 0
            os.fsync(outgoing.fileno())


def make_checkpoint(folder: Path, megabytes: int) -> Path:
    """A V3-shaped model of about that size: attention, a dense layer and as many experts as fit."""
    from tests.checkpoint.toy import v3_toy
    from tests.convert.conftest import fill

    widths = {"hidden_size": 2048, "moe_intermediate_size": 768, "q_lora_rank": 512, "kv_lora_rank": 256}
    widths |= {"intermediate_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 2048}
    experts = max(2, (megabytes * 10**6 - 60 * 10**6) // (3 * 2048 * 768 * 2))
    toy = v3_toy(fp8=False, n_routed_experts=experts, qk_nope_head_dim=128, v_head_dim=128, **widths)
    toy.shards = 4
    return fill(toy.write(folder))


def describe(result: dict[str, Any]) -> str:
    lines = [f"{result['threads']} threads, {result['rounds']} rounds, every output equal bit by bit"]
    for figures in result["kernels"]:
        rows, columns = figures["shape"]
        sides = [f"{name} {ns} ns ({figures['times_eager'][name]}x)" for name, ns in figures["ns_per_element"].items()]
        lines.append(f"{rows:6} x {columns:5}  per element: {', '.join(sides)}")
    whole = result["whole"]
    lines += [
        f"kernel against the eager loop: {result['kernel_ratio']}x at the worst shape (target {KERNEL_TARGET}x)",
        f"whole conversion: {whole['convert_s']} s, {whole['ratio']} times the plain one (at most {WHOLE_TARGET})",
        f"plain one: {whole['plain_s']} s, {whole['read_bytes']:,} bytes read and {whole['written_bytes']:,} written",
        f"peak memory of a converting process {result['peak_memory_mb']} MB",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
