#!/usr/bin/env python
"""Fault drills under load: the synthetic engine in the real tritonserver, `paced`, with the launch watching over it.

    python scripts/drills.py --trace AzureLLMInferenceTrace_conv.csv [--only raise,kill] [--duration-s 70]

One drill after the other, each on a fresh server at 0.7 times the knee. Told are the time to detect (until the first
client is told of trouble, and until the launch acts, where it does), the time to recover (until 90 % of what arrives
within ten seconds is good again) and what became of the requests. A request without any answer fails the drills. Faults
are given to the engine through a file that no other engine looks at: see engines/synthetic_faults.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import workspace
from livelib import MODEL, SLO, arrivals_for, prepare, recorded, served, trace_rows
from seekserve.bench.openloop import Options, Recording
from seekserve.server import Launch
from seekserve.simulate.measure import Context, measure
from seekserve.simulate.price import Prices
from seekserve.simulate.records import Arrival, Run
from seekserve_backend.engines.synthetic_faults import FAULTS_VARIABLE

RATE_RPS = 2.7
FAULT_AT_S = 20.0
LOOK_S = 0.2
ENGINE_STALL_S = 10.0
# Longer than anything that is promised (offline work: 300 s): what has no answer by then will never have one.
PATIENCE_S = 330.0
SKIP_ROWS, ROWS = 9_683, 9_000


@dataclass(frozen=True)
class Drill:
    name: str
    does: str
    strike: Callable[[Path, Launch], None]


@dataclass
class Seen:
    """What happened, on the clock of the load where that is known."""

    struck_s: float = math.nan
    acted_s: float = math.nan
    trouble: str = ""
    recordings: list[Recording] = field(default_factory=list)


def tell(**fault: object) -> Callable[[Path, Launch], None]:
    def strike(file: Path, _: Launch) -> None:
        new = file.with_suffix(".new")
        new.write_text(json.dumps(fault), encoding="utf-8")
        new.rename(file)

    return strike


def kill_stub(_: Path, launch: Launch) -> None:
    record = json.loads(launch.record_path.read_text("utf-8"))
    for path in Path(record["run_dir"]).glob("heartbeat-*.json"):
        os.kill(json.loads(path.read_text("utf-8"))["pid"], signal.SIGKILL)


def replace_policy(_: Path, launch: Launch) -> None:
    """Another kind takes over, which must drop nothing that was accepted."""
    (model,) = launch.prepared.models
    assert model.policy_file is not None
    old = json.loads(model.policy_file.read_text("utf-8"))
    new = model.policy_file.with_suffix(".new")
    new.write_text(json.dumps({**old, "name": "fcfs", "kind": "fcfs"}), encoding="utf-8")
    new.rename(model.policy_file)


DRILLS = (
    Drill("raise", "the engine raises in a step", tell(fault="raise")),
    Drill("hang", "a step takes 6 s more", tell(fault="hang", for_s=6)),
    Drill("stuck", f"a step never ends ({ENGINE_STALL_S:g} s are allowed)", tell(fault="hang", for_s=600)),
    Drill("slow", "every step takes twice as long for 20 s", tell(fault="slow", factor=2, for_s=20)),
    Drill("lose_kv", "the engine loses its cache with all that runs", tell(fault="lose_kv")),
    Drill("kill", "SIGKILL to the stub", kill_stub),
    Drill("policy", "the policy is replaced by one of another kind", replace_policy),
)


def run_drill(drill: Drill, folder: Path, bundle: Path, arrivals: Sequence[Arrival], seed: int) -> Seen:
    file, seen = folder / "faults.json", Seen()
    file.unlink(missing_ok=True)
    options = Options(drain_s=PATIENCE_S, seed=seed)
    with served(folder, "paced", {FAULTS_VARIABLE: str(file)}, engine_stall_s=ENGINE_STALL_S) as launch:
        address = launch.grpc_address
        load = threading.Thread(
            target=lambda: seen.recordings.append(recorded(address, bundle, arrivals, options, timeout_s=PATIENCE_S))
        )
        begun_s = time.perf_counter()
        load.start()
        while load.is_alive():
            time.sleep(LOOK_S)
            if math.isnan(seen.struck_s) and time.perf_counter() - begun_s >= FAULT_AT_S:
                seen.struck_s = time.perf_counter()
                drill.strike(file, launch)
            trouble = launch.trouble()
            if trouble is not None:
                seen.acted_s, seen.trouble = time.perf_counter(), trouble
                launch.recover(trouble)
        load.join()
    return seen


def row(drill: Drill, seen: Seen) -> tuple[str, int]:
    """A line of the table, and the requests that were lost without an answer."""
    (recording,) = seen.recordings
    fault_s = seen.struck_s - recording.started_s
    told_s = min(
        (
            outcome.end_s
            for outcome in recording.outcomes
            if outcome.state in ("failed", "refused", "expired")
            and outcome.end_s is not None
            and outcome.end_s > fault_s
        ),
        default=math.nan,
    )
    prices = Prices(MODEL, chunk_tokens=SLO.chunk_tokens)
    run = Run(recording.outcomes, 0, 0.0, recording.end_s, gaps_ms=recording.gaps_ms)
    figures = measure(run, Context(slo=SLO, prices=prices, warmup_s=10.0, surge_s=(fault_s, fault_s)))
    counts = Counter(outcome.state for outcome in recording.outcomes)
    lost = recording.unanswered + recording.cut_off
    acted = "-" if math.isnan(seen.acted_s) else f"{seen.acted_s - seen.struck_s:.1f}"
    told = "-" if math.isnan(told_s) else f"{told_s - fault_s:.2f}"
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
            text, missing = row(drill, run_drill(drill, folder, bundle, arrivals, 200 + n))
            lost += missing
            print(text, flush=True)
    if lost:
        sys.exit(f"{lost} requests got no answer")


if __name__ == "__main__":
    main()
