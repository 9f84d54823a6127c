#!/usr/bin/env python
"""Fault drills under load on a trace's requests, as a table: `seekserve soak --size drill` without its verdict.

    python scripts/drills.py --trace AzureLLMInferenceTrace_conv.csv [--only raise,kill] [--duration-s 70]

One drill after the other, each on a fresh server at 0.7 times the knee. Told are the time to detect (until the first
client is told of trouble, and until the launch acts, where it does), the time to recover (until 90 % of what arrives
within ten seconds is good again) and what became of the requests. A request without any answer fails the drills.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import workspace
from livelib import send, trace_rows
from seekserve.bench.openloop import Options
from seekserve.monitor.soak.drills import DRILLS, Drill, Seen, run_drill
from seekserve.monitor.soak.stand import MODEL, SLO, arrivals_for, prepare
from seekserve.simulate.measure import Context, measure
from seekserve.simulate.price import Prices
from seekserve.simulate.records import Arrival, Run

RATE_RPS = 2.7
FAULT_AT_S = 20.0
# Longer than anything that is promised (offline work: 300 s): what has no answer by then will never have one.
PATIENCE_S = 330.0
SKIP_ROWS, ROWS = 9_683, 9_000


def struck(drill: Drill, folder: Path, bundle: Path, arrivals: Sequence[Arrival], seed: int) -> Seen:
    options = Options(drain_s=PATIENCE_S, seed=seed)

    return run_drill(
        drill,
        folder,
        lambda address: send(address, bundle, arrivals, options, timeout_s=PATIENCE_S),
        fault_at_s=FAULT_AT_S,
    )


def row(drill: Drill, seen: Seen) -> tuple[str, int]:
    """A line of the table, and the requests that were lost without an answer."""
    recording, fault_s = seen.recording, seen.fault_s
    prices = Prices(MODEL, chunk_tokens=SLO.chunk_tokens)
    run = Run(recording.outcomes, 0, 0.0, recording.end_s, gaps_ms=recording.gaps_ms)
    figures = measure(run, Context(slo=SLO, prices=prices, warmup_s=10.0, surge_s=(fault_s, fault_s)))
    counts = Counter(outcome.state for outcome in recording.outcomes)
    lost = recording.unanswered + recording.cut_off
    acted = "-" if math.isnan(seen.acted_s) else f"{seen.acted_s - seen.struck_s:.1f}"
    told = "-" if math.isnan(seen.told_s) else f"{seen.told_s:.2f}"
    text = (
        f"| {drill.name} | {drill.does} | {told} | {acted} | {figures.recovery_s:.0f} | {len(recording.outcomes)} "
        f"| {counts['finished']} | {counts['failed']} | {counts['refused'] + counts['expired']} | {lost} |"
    )
    for what, n in recording.failures.items():
        text += f"\n<!-- {n} x {what} -->"
    return text, lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--only", help="names of drills, by comma")
    parser.add_argument("--duration-s", type=float, default=70.0)
    args = parser.parse_args()
    chosen = [drill for drill in DRILLS if args.only is None or drill.name in args.only.split(",")]
    rows = trace_rows(args.trace, skip=SKIP_ROWS, rows=ROWS)
    head = (
        "drill", "what happens", "first client told, s", "launch acts, s", "recovered, s", "requests", "finished",
        "failed with an error", "refused or expired", "lost without an answer",
    )  # fmt: skip
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|", flush=True)
    lost = 0
    with workspace() as folder:
        bundle = prepare(folder, ["paced"])
        for n, drill in enumerate(chosen):
            arrivals = arrivals_for(rows, RATE_RPS, args.duration_s, 200 + n)
            text, missing = row(drill, struck(drill, folder, bundle, arrivals, 200 + n))
            lost += missing
            print(text, flush=True)
    if lost:
        sys.exit(f"{lost} requests got no answer")


if __name__ == "__main__":
    main()
