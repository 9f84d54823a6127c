"""What the experiments share: the traces and their halves, policies, searches, and how results are kept.

Whatever is tuned is tuned on the first half of a trace and reported on the second, `paced` included: its constants are
those of the policy's defaults. Runs are paired: each policy meets the very same arrivals.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from seekserve.simulate.arrivals import make_arrivals
from seekserve.simulate.ask import DEFAULT_ENGINE
from seekserve.simulate.catalogue import engine_for
from seekserve.simulate.plant import Plant, PlantOptions
from seekserve.simulate.policies import candidate_for
from seekserve.simulate.slo import SloFile, read_slo
from seekserve.simulate.sweep import Case, Engine, Result, simulate
from seekserve.simulate.traces import Trace, read_trace

__all__ = [
    "CAPS",
    "HERE",
    "TIMEOUTS_S",
    "TRACES",
    "Lab",
    "Outcome",
    "Target",
    "ratio",
    "served_alone",
    "spread",
    "table",
]

HERE = Path(__file__).resolve().parent
TRACES = {
    "conversation": "AzureLLMInferenceTrace_conv.csv",
    "code": "AzureLLMInferenceTrace_code.csv",
    "long_context": "mooncake_fast25_conversation_lengths.csv",
    "reasoning": "servegen_deepseek_r1_aggregate.json",
}
ROWS = {"conversation": 19_366, "code": 8_819, "long_context": 12_031, "reasoning": 12_000}
CAPS = (4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128)
TIMEOUTS_S = (0.5, 1.0, 1.5, 3.0)
_RESAMPLES = 2000
_T, _R = TypeVar("_T"), TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Target:
    what: str
    wanted: str
    measured: str
    is_met: bool


@dataclass(slots=True)
class Outcome:
    """Of one experiment."""

    title: str
    parts: list[str] = field(default_factory=list)
    """Paragraphs and tables, in Markdown."""
    targets: list[Target] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Lab:
    seeds: int
    rows: int
    """At most, of each half of a trace."""
    jobs: int = 1
    is_quick: bool = False

    def slo(self, name: str) -> SloFile:
        return read_slo(HERE / "slo" / f"{name}.yaml")

    def trace(self, name: str, half: int) -> Trace:
        """1 to tune on, 2 to report on."""
        each = ROWS[name] // 2
        path = HERE / "traces" / TRACES[name]
        found = read_trace(path, skip=each * (half - 1), rows=min(each, self.rows))
        return _Named(name, found)

    def engine(self, **changes: Any) -> Engine:
        return engine_for(DEFAULT_ENGINE, kv_tokens=1_447_872, max_batch_size=256, **changes)

    def case(self, name: str, policy: str, *, speed: float = 1.0, half: int = 2, **changes: Any) -> Case:
        slo = changes.pop("slo", None) or self.slo(name)
        engine = changes.pop("engine", None) or self.engine()
        case = Case(trace=self.trace(name, half), slo=slo, candidate=candidate_for(policy, slo), engine=engine)
        case = replace(case, **changes)
        return replace(case, load=replace(case.load, speed=speed), label=case.label or policy)

    def run(self, cases: Sequence[Case]) -> list[list[Result]]:
        """For each case its seeds."""
        todo = [replace(case, seed=seed) for case in cases for seed in range(self.seeds)]
        done = self.map(simulate, todo)
        return [done[n * self.seeds : (n + 1) * self.seeds] for n in range(len(cases))]

    def map(self, function: Callable[[_T], _R], todo: Sequence[_T]) -> list[_R]:
        started_s = time.monotonic()
        if self.jobs == 1:
            done = [self._told(function(each), n, len(todo)) for n, each in enumerate(todo)]
        else:
            with ProcessPoolExecutor(self.jobs) as pool:
                found = pool.map(function, todo)
                done = [self._told(each, n, len(todo)) for n, each in enumerate(found)]
        print(f"\r    {len(todo)} done in {time.monotonic() - started_s:.0f} s", file=sys.stderr)
        return done

    @staticmethod
    def _told(result: _R, n: int, total: int) -> _R:
        print(f"\r    {n + 1}/{total}", end="", file=sys.stderr, flush=True)
        return result

    def knees(self, cases: Sequence[Case], *, low: float, high: float) -> list[list[float]]:
        """For each case and seed: offered requests/s up to which 90 % of the urgent ones meet their targets."""
        todo = [(replace(case, seed=seed), low, high) for case in cases for seed in range(self.seeds)]
        done = self.map(_knee, todo)
        return [done[n * self.seeds : (n + 1) * self.seeds] for n in range(len(cases))]


def served_alone(case: Case) -> float:
    """Part of the urgent requests whose first token an engine with nothing else to do would bring in time."""
    arrivals = make_arrivals(case.trace.rows(case.seed), case.slo, case.load, seed=case.seed)
    options = PlantOptions(chunk_tokens=case.slo.chunk_tokens)
    urgent = kept = 0
    for each in arrivals:
        rules = case.slo.classes[each.request_class]
        if rules.ttft_ms is None:
            continue
        plant = Plant(case.engine.plant, options)
        plant.add("alone", each.prompt_tokens, 2, each.cached_tokens)
        spent_ms, is_read = 0.0, False
        while not is_read:
            step = plant.step(0.0)
            spent_ms, is_read = spent_ms + step.ms, bool(step.firsts)
        urgent += 1
        kept += spent_ms <= rules.ttft_ms + rules.ttft_ms_per_token * each.prompt_tokens
    return kept / max(urgent, 1)


@dataclass(frozen=True, slots=True)
class _Named:
    """A trace by the name of its experiment."""

    name: str
    trace: Trace = field(repr=False)

    def rows(self, seed: int) -> Sequence[Any]:
        return self.trace.rows(seed)


def _knee(task: tuple[Case, float, float]) -> float:
    """Bisection over speeds 10 % apart, then a straight line between the last two; 0 when even the lowest fails."""
    case, low, high = task
    speeds = [low * 1.1**n for n in range(math.ceil(math.log(high / low) / math.log(1.1)) + 1)]
    found: dict[int, tuple[float, float]] = {}

    def at(n: int) -> tuple[float, float]:
        if n not in found:
            figures = simulate(replace(case, load=replace(case.load, speed=speeds[n]))).figures
            found[n] = (figures.offered_rps, figures.attainment)
        return found[n]

    holds, fails = -1, len(speeds)
    while fails - holds > 1:
        middle = (holds + fails) // 2
        holds, fails = (middle, fails) if at(middle)[1] >= 0.9 else (holds, middle)
    if holds < 0:
        return 0.0
    if fails == len(speeds):
        return at(holds)[0]
    (x0, y0), (x1, y1) = at(holds), at(fails)
    return x0 + (x1 - x0) * (y0 - 0.9) / max(y0 - y1, 1e-9)


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Mean and 95 % bootstrap interval of the mean; of one value, that value."""
    good = [value for value in values if not math.isnan(value)]
    if not good:
        return "-"
    if any(math.isinf(value) for value in good):
        return f"never in {sum(map(math.isinf, good))} of {len(good)}"
    if len(good) == 1:
        return format(good[0], form)
    low, high = _interval(good, lambda sample: sum(sample) / len(sample))
    return f"{sum(good) / len(good):{form}} ({low:{form}}-{high:{form}})"


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, str]:
    """Of means, with the interval from seeds drawn in pairs."""
    if not sum(under):
        return math.inf, "has no finite ratio: the other is 0"
    pairs = list(zip(over, under, strict=True))
    value = sum(over) / sum(under)
    if len(pairs) == 1:
        return value, f"{value:.2f}x"
    low, high = _interval(pairs, lambda s: sum(a for a, _ in s) / max(sum(b for _, b in s), 1e-12))
    return value, f"{value:.2f}x ({low:.2f}-{high:.2f})"


def _interval(values: Sequence[_T], statistic: Callable[[Sequence[_T]], float]) -> tuple[float, float]:
    lot = random.Random(1)
    drawn = sorted(statistic(lot.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return drawn[int(0.025 * _RESAMPLES)], drawn[int(0.975 * _RESAMPLES) - 1]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def figures(results: Sequence[Result], name: str) -> list[float]:
    return [getattr(result.figures, name) for result in results]
