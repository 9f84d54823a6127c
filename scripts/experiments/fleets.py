"""Many replicas: what simulating them costs, and what routing is worth."""

from __future__ import annotations

import random
import time
from dataclasses import replace

from lab import Lab, Outcome, figures, spread, table

from seekserve.simulate.arrivals import Load
from seekserve.simulate.sweep import simulate
from seekserve.simulate.traces import Recorded, TraceRow

__all__ = ["f1_cost", "f2_routers"]

_TURNS_PER_S = 56.0


def f1_cost(lab: Lab) -> Outcome:
    """Processor time, not wall time; the load grows with the replicas."""
    out = Outcome("F1. The cost of simulating many replicas")
    rows = []
    for replicas in (1, 4, 16, 64):
        case = lab.case("conversation", "paced", load=Load(process="poisson"), replicas=replicas, router="least-loaded")
        each = 300 if lab.is_quick else 1000
        recorded = case.trace.rows(0)
        many = [recorded[n % len(recorded)] for n in range(each * replicas)]
        trace = Recorded("conversation", [replace(row, time_s=n / (8.0 * replicas)) for n, row in enumerate(many)])
        started_s = time.process_time()
        result = simulate(replace(case, trace=trace))
        spent_s = time.process_time() - started_s
        rows.append(
            (str(replicas), f"{spent_s:.1f}", f"{1000.0 * spent_s / replicas:.0f}", f"{result.figures.attainment:.3f}")
        )
    out.parts.append("8 requests/s for each replica, least loaded first.")
    out.parts.append(table(("replicas", "processor s", "processor ms for each replica", "attainment"), rows))
    return out


def f2_routers(lab: Lab) -> Outcome:
    out = Outcome("F2. Routers, with conversations that grow by a turn at a time")
    count = 2000 if lab.is_quick else 8000
    names = ("round-robin", "least-loaded", "prefix-aware")
    case = lab.case("long_context", "paced", replicas=8)
    case = replace(case, trace=Recorded("turns", _turns(count)))
    done = lab.run([replace(case, router=name) for name in names])
    rows = [
        (
            name,
            *(spread(figures(mine, n), ".3f") for n in ("attainment", "hit_ratio")),
            spread(figures(mine, "ttft_p99_s")),
        )
        for name, mine in zip(names, done, strict=True)
    ]
    out.parts.append(
        "8 replicas; generated conversations: each turn repeats the one before and adds 512 to 2,048 tokens."
    )
    out.parts.append(table(("router", "attainment", "prompt tokens cached", "TTFT P99 s"), rows))
    return out


def _turns(count: int) -> list[TraceRow]:
    lot = random.Random(5)
    talks: list[list[int]] = []
    rows, now, fresh = [], 0.0, 0
    for _ in range(count):
        now += lot.expovariate(_TURNS_PER_S)
        if len(talks) < 200 or lot.random() < 0.1:
            talks.append([])
            talks = talks[-400:]
        talk = lot.choice(talks)
        for _ in range(lot.randint(1, 4)):
            fresh += 1
            talk.append(fresh)
        prompt = 512 * len(talk) + lot.randint(1, 511)
        rows.append(TraceRow(now, prompt, lot.randint(50, 400), 0, tuple(talk)))
    return rows
