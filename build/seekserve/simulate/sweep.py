"""A grid of runs: traces x policies x speeds x seeds, each policy on the very same arrivals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from seekserve.errors import InputError
from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.step_model import StepModel

from .arrivals import Load, make_arrivals, surge_window_s
from .fleet import make_router
from .measure import Context, Figures, measure
from .plant import Plant, PlantOptions
from .policies import Candidate
from .price import Prices
from .records import Clients, Run
from .replica import Replica
from .run import run
from .slo import SloFile
from .traces import Trace

__all__ = ["Case", "Engine", "Result", "cases", "run_all", "simulate"]

_MAX_NUM_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The plant, and the model of it that the scheduler is given: two inputs, so that mismatch can be studied."""

    plant: StepModel
    controller: StepModel | None
    kv: KvCache
    max_batch_size: int = 256
    max_seq_len_tokens: int = 200_000
    slowdown: float = 1.0
    """The plant is this many times slower than its model."""
    slow_from_part: float = 0.0
    """Of the arrivals' time; before that it runs as modelled."""
    noise: float = 0.0
    stall_at_s: float | None = None
    stall_s: float = 30.0
    fail_at_s: tuple[float, ...] = ()
    draft_tokens: int = 0
    acceptance: float = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    trace: Trace
    slo: SloFile
    candidate: Candidate
    engine: Engine = field(repr=False)
    load: Load = field(default_factory=Load)
    clients: Clients = field(default_factory=Clients)
    seed: int = 0
    replicas: int = 1
    router: str = "round-robin"
    sample_every_s: float | None = None
    label: str = ""
    """Shown in place of the policy's name."""

    @property
    def policy(self) -> str:
        return self.label or self.candidate.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    case: Case
    figures: Figures
    steps: int
    simulated_s: float
    run: Run | None = field(default=None, repr=False)
    """Kept where samples were asked for."""

    def to_json(self) -> dict[str, object]:
        case = self.case
        return {
            "policy": case.policy,
            "trace": case.trace.name,
            "speed": case.load.speed,
            "seed": case.seed,
            "arrivals": case.load.process,
            "replicas": case.replicas,
            **self.figures.to_json(),
            "steps": self.steps,
            "simulated_s": round(self.simulated_s, 3),
        }


def cases(
    traces: Sequence[tuple[Trace, SloFile]],
    candidates: Callable[[SloFile], Sequence[Candidate]],
    base: Case,
    *,
    speeds: Sequence[float],
    seeds: Sequence[int],
) -> Iterator[Case]:
    """`base` with every combination of the rest."""
    for (trace, slo), speed, seed in itertools.product(traces, speeds, seeds):
        load = replace(base.load, speed=speed)
        for candidate in candidates(slo):
            yield replace(base, trace=trace, slo=slo, candidate=candidate, load=load, seed=seed)


def simulate(case: Case) -> Result:
    rows = case.trace.rows(case.seed)
    arrivals = make_arrivals(rows, case.slo, case.load, seed=case.seed)
    if case.candidate.knows_lengths:
        arrivals = [replace(each, max_tokens=each.output_tokens) for each in arrivals]
    if case.router == "prefix-aware" and not any(row.blocks for row in rows):
        raise InputError(
            f"--router prefix-aware: trace {case.trace.name} has no block hashes",
            hint="a Mooncake JSONL trace has them in hash_ids",
        )
    engine, last_s = case.engine, arrivals[-1].time_s
    slowdowns = ((engine.slow_from_part * last_s, engine.slowdown),) if engine.slowdown != 1.0 else ()
    prices = Prices(engine.plant, chunk_tokens=case.slo.chunk_tokens)
    done = run(
        arrivals,
        [_replica(case, n, slowdowns) for n in range(case.replicas)],
        router=make_router(case.router, case.replicas, prices) if case.replicas > 1 else None,
        clients=case.clients,
        sample_every_s=case.sample_every_s,
    )
    context = Context(
        slo=case.slo,
        prices=prices,
        replicas=case.replicas,
        surge_s=surge_window_s(rows, case.load),
        slowdowns=slowdowns,
    )
    kept = done if case.sample_every_s is not None else None
    return Result(case=case, figures=measure(done, context), steps=done.steps, simulated_s=done.end_s, run=kept)


def _replica(case: Case, number: int, slowdowns: tuple[tuple[float, float], ...]) -> Replica:
    engine = case.engine
    options = PlantOptions(
        chunk_tokens=case.slo.chunk_tokens,
        kv_tokens=engine.kv.capacity_blocks * engine.kv.block_tokens,
        may_pause=engine.kv.may_pause,
        slowdowns=slowdowns,
        noise=engine.noise,
        stalls=() if engine.stall_at_s is None else ((engine.stall_at_s, engine.stall_s),),
        failures_s=engine.fail_at_s,
        draft_tokens=engine.draft_tokens,
        acceptance=engine.acceptance,
        has_prefix_cache=case.load.reuses_prefixes,
        seed=case.seed * 1009 + number,
    )
    limits = Limits(
        max_seq_len_tokens=engine.max_seq_len_tokens,
        max_batch_size=engine.max_batch_size,
        max_num_tokens=max(_MAX_NUM_TOKENS, case.slo.chunk_tokens),
        prefill_chunk_tokens=case.slo.chunk_tokens,
    )
    plant = Plant(engine.plant, options)
    controller = engine.plant if case.candidate.knows_lengths else engine.controller
    return Replica(case.candidate.policy, limits, engine.kv, controller, plant, number=number)


def run_all(todo: Sequence[Case], *, jobs: int = 1) -> list[Result]:
    """In the order of `todo`, whatever the number of processes."""
    if jobs == 1 or len(todo) < 2:
        return [simulate(case) for case in todo]
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(min(jobs, len(todo))) as pool:
        return list(pool.map(simulate, todo, chunksize=max(1, math.ceil(len(todo) / (8 * jobs)))))
