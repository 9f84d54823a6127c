#!/usr/bin/env python3
"""Time and memory of reading a full-size DeepSeek-V3 checkpoint, beside opening the same headers with `safetensors`.

Makes 163 sparse shards with the true names, shapes and dtypes (about 92 thousand tensors, 688 GB apparent, a few MB on
disk), then runs both in turn in fresh processes and prints the ratio of the medians and the peak memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "tests" / "checkpoint" / "configs" / "deepseek-v3.json"
TIME_RATIO_TARGET = 4.0
MEMORY_TARGET_MB = 150

# each side imports first, then times the work alone; peak memory is that of the whole process
INSPECT = """
import json, resource, sys, time
from seekserve.checkpoint import read_checkpoint
start = time.perf_counter()
facts = read_checkpoint(sys.argv[1])
elapsed = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"s": elapsed, "peak_mb": peak, "tensors": len(facts.tensors), "family": facts.family,
                  "errors": len(facts.errors)}))
"""
LIBRARY = """
import json, resource, sys, time
from pathlib import Path
from safetensors import safe_open
start = time.perf_counter()
tensors = 0
for path in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(path, framework="np") as file:
        tensors += len(file.keys())
elapsed = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"s": elapsed, "peak_mb": peak, "tensors": tensors}))
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where to make the files (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="seekserve-bench-", dir=options.folder) as folder:
        tensors, apparent = make_checkpoint(Path(folder))
        rounds = [(run(INSPECT, folder), run(LIBRARY, folder)) for _ in range(options.rounds)]
    result = summary(rounds, tensors, apparent)
    print(json.dumps(result, indent=2) if options.json else describe(result))
    return 0 if result["is_within_targets"] else 1


def make_checkpoint(folder: Path) -> tuple[int, int]:
    sys.path.insert(0, str(ROOT))
    from tests.checkpoint.toy import full_size_v3, write_sparse

    toy = full_size_v3(json.loads(CONFIG.read_text(encoding="utf-8")))
    write_sparse(toy, folder)
    return len(toy.tensors), sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def run(program: str, folder: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the measured process ended with {done.returncode}: {done.stderr[-800:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def summary(rounds: list[tuple[dict[str, float], dict[str, float]]], tensors: int, apparent: int) -> dict[str, object]:
    ours = statistics.median(mine["s"] for mine, _ in rounds)
    theirs = statistics.median(library["s"] for _, library in rounds)
    peak = max(mine["peak_mb"] for mine, _ in rounds)
    if any(mine["tensors"] != tensors or mine["errors"] for mine, _ in rounds):
        raise SystemExit(f"the report is wrong: {rounds[0][0]} where {tensors} tensors and no error are right")
    return {
        "tensors": tensors,
        "apparent_bytes": apparent,
        "inspect_s": round(ours, 3),
        "safetensors_s": round(theirs, 3),
        "time_ratio": round(ours / theirs, 2),
        "inspect_peak_mb": round(peak, 1),
        "safetensors_peak_mb": round(max(library["peak_mb"] for _, library in rounds), 1),
        "rounds": len(rounds),
        "is_within_targets": ours / theirs <= TIME_RATIO_TARGET and peak <= MEMORY_TARGET_MB,
    }


def describe(result: dict[str, object]) -> str:
    return (
        f"{result['tensors']:,} tensors, {result['apparent_bytes']:,} bytes apparent, {result['rounds']} pairs\n"
        f"read_checkpoint   {result['inspect_s']} s, peak {result['inspect_peak_mb']} MB (target {MEMORY_TARGET_MB})\n"
        f"safetensors       {result['safetensors_s']} s, peak {result['safetensors_peak_mb']} MB\n"
        f"ratio             {result['time_ratio']} (target {TIME_RATIO_TARGET})"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
