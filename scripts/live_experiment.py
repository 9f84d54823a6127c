#!/usr/bin/env python
"""The simulator's predictions against live runs: an engine in the real tritonserver, the same arrivals.

    python scripts/live_experiment.py --trace AzureLLMInferenceTrace_conv.csv [--repeats 3] [--duration-s 60]
    python scripts/live_experiment.py --trace AzureLLMInferenceTrace_conv.csv --engine reference

The engine is the synthetic one, or the tiny model on the CPU with a step model of its own: its steps are recorded while
a server is under load, and fitted, before anything is predicted.

For each seed and load, each policy gets the very same arrivals, live (a fresh server each time) and simulated. Loads
are parts of the knee of `paced`, which the simulator finds. The scale is told in livelib.py. Prints tables for
docs/live.md and writes everything to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import TINY, workspace
from livelib import (
    SYNTHETIC,
    Scale,
    TraceRow,
    arrivals_for,
    figures_of,
    prepare_reference,
    recorded,
    simulated,
    trace_rows,
)
from seekserve.bench.knee import find_knee
from seekserve.bench.lag import lag_of
from seekserve.bench.openloop import Options, Recording
from seekserve.monitor.soak.stand import prepare, render_policies, served
from seekserve.simulate.measure import BUCKETS
from seekserve.simulate.records import Run
from seekserve.simulate.stats import mean, percentile
from seekserve_backend.answers import Inbound
from seekserve_backend.prompts import PromptEncoder

FACTORS = (0.7, 1.0, 1.5, 2.0)
CAPS = (8, 10, 12, 16, 20)
TIMEOUT_S = 1.0
SKIP_ROWS, ROWS = 9_683, 9_000
EDGES_TOKENS = (1024, 2048, 4096, 8192, 32768)


def simulated_mean(
    rows: Sequence[TraceRow], policy: str, rate: float, duration_s: float, field: str, scale: Scale
) -> float:
    """Over seeds that no live run uses."""
    runs = [
        simulated(arrivals_for(rows, rate, duration_s, seed, scale), policy, scale=scale) for seed in range(100, 106)
    ]
    return mean([getattr(figures, field) for figures in runs])


def knee_of(rows: Sequence[TraceRow], duration_s: float, scale: Scale) -> float:
    found = find_knee(
        lambda rate: simulated_mean(rows, "paced", rate, duration_s, "attainment", scale), 2.0, resolution=1.05
    )
    assert found.rate_rps is not None, found
    return found.rate_rps


def best_static(rows: Sequence[TraceRow], rate: float, duration_s: float, scale: Scale) -> str:
    """The cap that is best at 1.5 times the knee."""
    names = [f"static:{cap}:{TIMEOUT_S:g}" for cap in CAPS]
    return max(names, key=lambda name: simulated_mean(rows, name, 1.5 * rate, duration_s, "goodput_rps", scale))


def live(
    folder: Path,
    bundle: Path,
    policy: str,
    rows: Sequence[TraceRow],
    rate: float,
    args: argparse.Namespace,
    seed: int,
    scale: Scale,
) -> dict[str, object]:
    arrivals = arrivals_for(rows, rate, args.duration_s, seed, scale)
    predicted = simulated(arrivals, policy, scale=scale)
    with served(folder, policy) as launch:
        recording = recorded(
            launch.grpc_address, bundle, arrivals, Options(drain_s=args.drain_s, seed=seed), scale=scale
        )
    figures = figures_of(Run(recording.outcomes, 0, 0.0, recording.end_s, gaps_ms=recording.gaps_ms), scale)
    lag = lag_of(recording.send_lag_ms, recording.loop_lag_ms, scale.slo)
    return {
        "policy": policy,
        "rate_rps": rate,
        "seed": seed,
        "requests": len(arrivals),
        "load_average": os.getloadavg()[0],
        "live": figures.to_json(),
        "simulated": predicted.to_json(),
        "lag_p99_ms": lag.worst_ms,
        "is_valid": lag.is_valid,
        "unanswered": recording.unanswered,
        "cut_off": recording.cut_off,
        "failures": recording.failures,
        "refusal_ms": [[each.prompt_tokens, each.code, each.sent_ms] for each in recording.refusals],
    }


def agreement(runs: Sequence[dict[str, object]]) -> str:
    """The table of the goodput that was predicted and measured, from the runs whose client kept up."""
    head = (
        "load", "policy", "runs", "offered/s", "live goodput/s", "simulated", "live / simulated", "bound", "within",
        "live attainment", "simulated", "load average", "lag P99 ms",
    )  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    cells: dict[tuple[float, str], list[dict[str, object]]] = defaultdict(list)
    for each in runs:
        if each["is_valid"]:
            cells[(float(str(each["factor"])), str(each["policy"]))].append(each)
    for (factor, policy), same in sorted(cells.items()):
        measured = [_number(each, "live", "goodput_rps") for each in same]
        expected = [_number(each, "simulated", "goodput_rps") for each in same]
        gaps = [m - e for m, e in zip(measured, expected, strict=True)]
        bound = max(0.1 * mean(expected), 2.0 * statistics.stdev(gaps) if len(gaps) > 1 else 0.0)
        ratio = f"{mean(measured) / mean(expected):.2f}" if mean(expected) else "-"
        cell = (
            f"{factor:g}x", policy, str(len(same)), f"{mean([_number(r, 'live', 'urgent_rps') for r in same]):.2f}",
            f"{mean(measured):.2f}", f"{mean(expected):.2f}", ratio, f"±{bound:.2f}",
            "yes" if abs(mean(gaps)) <= bound else "NO",
            f"{mean([_number(r, 'live', 'attainment') for r in same]):.3f}",
            f"{mean([_number(r, 'simulated', 'attainment') for r in same]):.3f}",
            f"{max(float(str(r['load_average'])) for r in same):.1f}",
            f"{max(float(str(r['lag_p99_ms'])) for r in same):.1f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cell)} |")
    left_out = sum(not each["is_valid"] for each in runs)
    return "\n".join(lines) + f"\n\n{left_out} of {len(runs)} runs were not valid (client too slow) and are left out."


def _number(run: dict[str, object], part: str, field: str) -> float:
    figures = run[part]
    assert isinstance(figures, dict)
    return float("nan") if figures[field] is None else float(figures[field])


def refusals(recording: Recording, texts: dict[int, str]) -> str:
    """Refusal latency of text prompts by their length, each against the time that tokenising it takes alone."""
    lines = [
        "| prompt tokens | refused | refusal P50 ms | P99 ms | tokenising P50 ms | P99 beyond tokenising ms |",
        "|---|---|---|---|---|---|",
    ]
    encoder = PromptEncoder(TINY)
    told = [each for each in recording.refusals if each.code != "expired"]
    edges = (0, *EDGES_TOKENS)
    for name, low, high in zip(BUCKETS, edges, (*EDGES_TOKENS, 10**9), strict=True):
        mine = [each for each in told if low <= each.prompt_tokens < high]
        if not mine:
            continue
        ms = [each.sent_ms for each in mine]
        alone_ms = [_tokenising_ms(encoder, Inbound(text=texts[each.prompt_tokens].encode())) for each in mine]
        beyond_ms = [took - alone for took, alone in zip(ms, alone_ms, strict=True)]
        columns = (percentile(ms, 0.5), percentile(ms, 0.99), percentile(alone_ms, 0.5), percentile(beyond_ms, 0.99))
        lines.append(f"| {name} | {len(mine)} | {' | '.join(f'{each:.1f}' for each in columns)} |")
    return "\n".join(lines)


def _tokenising_ms(encoder: PromptEncoder, inbound: Inbound) -> float:
    """Of this very prompt, the median of three."""
    took_ms = []
    for _ in range(3):
        before = time.perf_counter()
        encoder.encode(inbound)
        took_ms.append(1000.0 * (time.perf_counter() - before))
    return percentile(took_ms, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="of conversations; not needed with --table")
    parser.add_argument("--engine", choices=("synthetic", "reference"), default="synthetic")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--duration-s", type=float, default=60.0)
    parser.add_argument("--drain-s", type=float, default=35.0, help="what is later than this has missed its targets")
    parser.add_argument("--factors", default=",".join(map(str, FACTORS)))
    parser.add_argument("--policies", help="instead of paced, fcfs and the best static cap")
    parser.add_argument("--refusals-only", action="store_true")
    parser.add_argument(
        "--redo",
        type=Path,
        help="repeat the runs in this file whose client was too slow (synthetic engine)",
    )
    parser.add_argument("--table", type=Path, nargs="+", help="run nothing; the table of what --out wrote before")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "seekserve-live.json")
    args = parser.parse_args()
    if args.redo:
        redo(args)
        return
    if args.table:
        print(agreement([run for path in args.table for run in json.loads(path.read_text("utf-8"))]))
        return
    with workspace() as folder:
        experiment(folder, args)


def experiment(folder: Path, args: argparse.Namespace) -> None:
    bundle, scale = folder / "bundle", SYNTHETIC
    if args.engine == "reference":
        scale = prepare_reference(folder, args.trace, skip=SKIP_ROWS, rows=ROWS)
    rows = trace_rows(args.trace, skip=SKIP_ROWS, rows=ROWS, scale=scale)
    knee = knee_of(rows, args.duration_s, scale)
    policies = (
        args.policies.split(",")
        if args.policies
        else ["paced", best_static(rows, knee, args.duration_s, scale), "fcfs"]
    )
    every = [*dict.fromkeys([*policies, "paced"])]
    if args.engine == "reference":
        render_policies(folder, bundle, every, scale.slo)
    else:
        prepare(folder, every)
    print(f"knee of paced, simulated: {knee:.2f} requests/s; policies {', '.join(policies)}", flush=True)
    runs: list[dict[str, object]] = []
    for seed in range(args.repeats if not args.refusals_only else 0):
        for factor in map(float, args.factors.split(",")):
            for policy in policies:
                made = {"factor": factor, **live(folder, bundle, policy, rows, factor * knee, args, seed, scale)}
                runs.append(made)
                args.out.write_text(json.dumps(runs, indent=1), encoding="utf-8")
                print(
                    f"seed {seed} {factor:g}x {policy}: live {_number(made, 'live', 'goodput_rps'):.2f}, simulated "
                    f"{_number(made, 'simulated', 'goodput_rps'):.2f} of "
                    f"{_number(made, 'live', 'urgent_rps'):.2f}/s; lag {made['lag_p99_ms']:.1f} ms, "
                    f"load {made['load_average']:.1f}, {made['failures'] or 'no failures'}, "
                    f"unanswered {made['unanswered']}, cut off {made['cut_off']}",
                    flush=True,
                )
    if runs:
        print(agreement(runs))
    print(refusal_run(folder, bundle, rows, 2.0 * knee, args, scale))


def redo(args: argparse.Namespace) -> None:
    """A run is replaced by its repetition when that was less disturbed, valid or not: nobody looks at its goodput."""
    runs = json.loads(args.redo.read_text("utf-8"))
    rows = trace_rows(args.trace, skip=SKIP_ROWS, rows=ROWS)
    todo = [n for n, run in enumerate(runs) if not run["is_valid"]]
    with workspace() as folder:
        bundle = prepare(folder, sorted({runs[n]["policy"] for n in todo}))
        for n in todo:
            old = runs[n]
            new = live(folder, bundle, old["policy"], rows, old["rate_rps"], args, old["seed"], SYNTHETIC)
            print(
                f"{old['policy']} {old['factor']}x: lag {old['lag_p99_ms']:.1f} -> {new['lag_p99_ms']:.1f} ms",
                flush=True,
            )
            if float(str(new["lag_p99_ms"])) < old["lag_p99_ms"]:
                runs[n] = {"factor": old["factor"], **new}
                args.redo.write_text(json.dumps(runs, indent=1), encoding="utf-8")
    print(agreement(runs))


def refusal_run(
    folder: Path, bundle: Path, rows: Sequence[TraceRow], rate: float, args: argparse.Namespace, scale: Scale
) -> str:
    from seekserve.bench.prompts import Prompts

    arrivals = arrivals_for(rows, rate, args.duration_s, 50, scale)
    words = Prompts(None, seed=0)
    texts = {each.prompt_tokens: words.request_for(each, stream=True).prompt or "" for each in arrivals}
    with served(folder, "paced") as launch:
        options = Options(drain_s=args.drain_s, seed=50)
        recording = recorded(launch.grpc_address, bundle, arrivals, options, as_text=True, scale=scale)
    return refusals(recording, texts)


if __name__ == "__main__":
    main()
