"""What `seekserve --help` costs beside an empty interpreter and beside a peer, interleaved round by round.

    python scripts/bench_cli_startup.py [--rounds 20] [--peer transformers]

Every round starts each command once, so that a slow moment of the machine meets all of them; medians of the rounds and
of the ratios within a round are printed. Exit 1 when `seekserve --help` takes more than 10 times `python -c pass`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

TARGET = 10.0
EMPTY = "python -c pass"
OURS = "seekserve --help"


def commands(peer: str) -> dict[str, list[str]]:
    """Label -> argument list; the peer only where it is installed."""
    scripts = Path(sys.executable).parent
    found = {EMPTY: [sys.executable, "-c", "pass"], OURS: [str(scripts / "seekserve"), "--help"]}
    path = shutil.which(peer, path=str(scripts)) or shutil.which(peer)
    if path is None:
        print(f"peer {peer!r} is not installed: left out", file=sys.stderr)
    else:
        found[f"{peer} --help"] = [path, "--help"]
    return found


def once(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up cost of the command line.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--peer", default="transformers", help="console script to run beside it")
    arguments = parser.parse_args()
    runs = commands(arguments.peer)
    for command in runs.values():
        once(command)  # byte code and file cache
    took: dict[str, list[float]] = {label: [] for label in runs}
    for _ in range(arguments.rounds):
        for label, command in runs.items():
            took[label].append(once(command))
    for label, times in took.items():
        ratios = [mine / empty for mine, empty in zip(times, took[EMPTY], strict=True)]
        print(
            f"{label:24} median {statistics.median(times) * 1000:8.1f} ms   "
            f"{statistics.median(ratios):6.1f}x `{EMPTY}` (min {min(ratios):.1f}, max {max(ratios):.1f})"
        )
    ratio = statistics.median(mine / empty for mine, empty in zip(took[OURS], took[EMPTY], strict=True))
    print(f"target: at most {TARGET:g}x; measured {ratio:.1f}x over {arguments.rounds} rounds")
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
