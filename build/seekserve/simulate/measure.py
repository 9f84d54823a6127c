"""What a run is worth: goodput and attainment over what was offered, never over what was admitted.

The targets of a request that came back count from its last try; a request counts once, however often it tried.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .aftermath import recovery_s, rung_changes_per_min, settle_s
from .fairness import fairness, served_price_ms
from .price import Prices
from .records import Outcome, Run
from .slo import SloFile
from .stats import percentile

__all__ = ["BUCKETS", "Context", "Figures", "is_good", "measure", "tpot_ms"]

_EDGES_TOKENS = (1024, 2048, 4096, 8192, 32768)
BUCKETS = ("0-1k", "1k-2k", "2k-4k", "4k-8k", "8k-32k", "32k+")
_SHORT_TOKENS = 8192


@dataclass(slots=True, kw_only=True)
class Figures:
    """Of the requests that arrived after the warm-up; ratios from 0 to 1; "urgent" is every class that is promised a
    first token. NaN where there is nothing to measure."""

    offered_rps: float
    urgent_rps: float
    goodput_rps: float
    """Urgent requests that met all of their targets, per second of arrivals."""
    attainment: float
    """The same over all urgent requests offered."""
    shed_ratio: float
    """Urgent requests whose last answer was a refusal."""
    expired_ratio: float
    """Urgent requests that were let in and then ran out of time."""
    failed_ratio: float
    """Urgent requests that the engine lost, or whose client hung up."""
    shed_by_bucket: dict[str, float]
    """Refused or expired, by prompt length."""
    shed_by_class: dict[str, float]
    attainment_by_class: dict[str, float]
    wasted_tokens: int
    """Produced for urgent requests that missed a target, or for tries that were given up."""
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    tpot_p50_ms: float
    tpot_p90_ms: float
    tpot_p99_ms: float
    itl_p99_ms: float
    """Of all gaps between tokens of all classes, the whole run long."""
    e2e_p99_s: float
    short_ttft_p99_s: float
    """Of urgent prompts below 8,192 tokens."""
    short_tpot_p99_ms: float
    longest_wait_s: float
    """In the queue, of any request that was released."""
    longest_offline_wait_s: float
    offline_attainment: float
    offline_tokens_per_s: float
    """Of answers that ended between the warm-up and the last arrival, whenever they were asked for."""
    offline_share: float
    """Part of the engine time of those answers that went to offline requests, by price."""
    output_tokens_per_s: float
    jain: float
    """Over tenants: engine time served over what max-min fairness entitles each to."""
    attainment_by_tenant: dict[str, float]
    recovery_s: float
    """From the end of the surge until 90 % of what arrives within 10 s is good."""
    settle_s: float
    """From the last change of the engine's speed until the scheduler's bias is within 5 % of it."""
    rung_changes_per_min: float
    tries: float
    breaker_openings: int
    hit_ratio: float
    """Prompt tokens that did not have to be read, of those released."""
    pauses: float
    """Requests that engines stopped because their cache was full, the whole run long."""
    reread_tokens: float
    """Of these requests, read a second time."""
    busy_ratio: float
    """Of the time that engines could have worked."""
    batch_formation_ms: float
    """Mean time from being let in to the first engine step, of all classes, the whole run long."""
    memory_pressure_max: float
    """The guides' figure, once a second where the run was sampled; NaN elsewhere."""
    batch_efficiency_mean: float
    """The same."""

    def to_json(self) -> dict[str, object]:
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, float):
        return "never" if value == math.inf else None if math.isnan(value) else round(value, 5)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the measures need to know beside the outcomes."""

    slo: SloFile
    prices: Prices
    replicas: int = 1
    warmup_s: float = 60.0
    surge_s: tuple[float, float] | None = None
    slowdowns: Sequence[tuple[float, float]] = ()

    def is_offline(self, outcome: Outcome) -> bool:
        return self.slo.classes[outcome.arrival.request_class].is_offline


class _Counted:
    """The outcomes that count, sorted once for all measures."""

    def __init__(self, run: Run, context: Context) -> None:
        self.last_s = run.outcomes[-1].arrival.time_s
        warmup_s = min(context.warmup_s, self.last_s / 3.0)
        self.span_s = max(self.last_s - warmup_s, 1e-9)
        self.all = [o for o in run.outcomes if o.arrival.time_s >= warmup_s]
        self.urgent = [o for o in self.all if not context.is_offline(o)]
        self.offline = [o for o in self.all if context.is_offline(o)]
        self.done = [o for o in self.urgent if o.state == "finished"]
        self.in_time = [o for o in run.outcomes if o.end_s is not None and warmup_s <= o.end_s <= self.last_s]
        """Ended between the warm-up and the last arrival: what drains later makes no policy look better."""
        self.good = {id(o) for o in run.outcomes if is_good(o, context.slo)}

    def met(self, those: Sequence[Outcome]) -> float:
        return _ratio(those, lambda o: id(o) in self.good)


def measure(run: Run, context: Context) -> Figures:
    counted = _Counted(run, context)
    return Figures(
        **_worth(counted),
        **_latencies(run, counted),
        **_throughput(run, counted, context),
        jain=fairness(counted.all, counted.in_time, context.prices),
        attainment_by_tenant={name: counted.met(those) for name, those in _by(counted.urgent, _tenant).items() if name},
        recovery_s=recovery_s([o for o in run.outcomes if not context.is_offline(o)], counted.good, context.surge_s),
        settle_s=settle_s(run.samples, context.slowdowns),
        rung_changes_per_min=rung_changes_per_min(run.samples),
        breaker_openings=run.breaker_openings,
        batch_formation_ms=run.batch_formation_ms,
        pauses=float(run.pauses),
        reread_tokens=float(run.reread_tokens),
        memory_pressure_max=max((each.memory_pressure for each in run.samples), default=math.nan),
        batch_efficiency_mean=_mean([each.batch_efficiency for each in run.samples]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _worth(counted: _Counted) -> dict[str, Any]:
    urgent, by_class = counted.urgent, _by(counted.all, _class)
    good = [o for o in urgent if id(o) in counted.good]
    return {
        "offered_rps": len(counted.all) / counted.span_s,
        "urgent_rps": len(urgent) / counted.span_s,
        "goodput_rps": len(good) / counted.span_s,
        "attainment": counted.met(urgent),
        "shed_ratio": _ratio(urgent, lambda o: o.state == "refused"),
        "expired_ratio": _ratio(urgent, lambda o: o.state == "expired"),
        "failed_ratio": _ratio(urgent, lambda o: o.state in ("failed", "left")),
        "shed_by_bucket": {name: _ratio(those, _is_shed) for name, those in _by_bucket(urgent).items()},
        "shed_by_class": {name: _ratio(those, _is_shed) for name, those in by_class.items()},
        "attainment_by_class": {name: counted.met(those) for name, those in by_class.items()},
        "wasted_tokens": sum(o.wasted_tokens + (0 if id(o) in counted.good else o.tokens) for o in urgent),
        "tries": sum(o.tries for o in counted.all) / max(len(counted.all), 1),
    }


def _latencies(run: Run, counted: _Counted) -> dict[str, Any]:
    done = counted.done
    short = [o for o in done if o.arrival.prompt_tokens < _SHORT_TOKENS]
    ttft, tpot = [_ttft_s(o) for o in done], _tpots_ms(done)
    released = [o for o in counted.all if o.released_s is not None]
    return {
        "ttft_p50_s": percentile(ttft, 0.5),
        "ttft_p90_s": percentile(ttft, 0.9),
        "ttft_p99_s": percentile(ttft, 0.99),
        "tpot_p50_ms": percentile(tpot, 0.5),
        "tpot_p90_ms": percentile(tpot, 0.9),
        "tpot_p99_ms": percentile(tpot, 0.99),
        "itl_p99_ms": _weighted_percentile(run.gaps_ms, 0.99),
        "e2e_p99_s": percentile([(o.end_s or 0.0) - o.asked_s for o in done], 0.99),
        "short_ttft_p99_s": percentile([_ttft_s(o) for o in short], 0.99),
        "short_tpot_p99_ms": percentile(_tpots_ms(short), 0.99),
        "longest_wait_s": max(map(_wait_s, released), default=0.0),
        "longest_offline_wait_s": max((_wait_s(o) for o in counted.offline if o.released_s is not None), default=0.0),
    }


def _throughput(run: Run, counted: _Counted, context: Context) -> dict[str, Any]:
    offline = [o for o in counted.in_time if context.is_offline(o)]
    served_ms = sum(served_price_ms(o, context.prices) for o in counted.in_time)
    prompt_tokens = sum(o.arrival.prompt_tokens for o in run.outcomes if o.released_s is not None)
    return {
        "offline_attainment": counted.met(counted.offline),
        "offline_tokens_per_s": sum(o.tokens for o in offline) / counted.span_s,
        "offline_share": sum(served_price_ms(o, context.prices) for o in offline) / served_ms
        if served_ms
        else math.nan,
        "output_tokens_per_s": sum(o.tokens for o in counted.in_time) / counted.span_s,
        "hit_ratio": run.hit_tokens / max(prompt_tokens, 1),
        "busy_ratio": run.busy_s / max(run.end_s * context.replicas, 1e-9),
    }


def is_good(outcome: Outcome, slo: SloFile) -> bool:
    if outcome.state != "finished" or outcome.first_s is None or outcome.end_s is None:
        return False
    return slo.classes[outcome.arrival.request_class].is_met(
        ttft_ms=1000.0 * (outcome.first_s - outcome.asked_s),
        tpot_ms=tpot_ms(outcome),
        e2e_ms=1000.0 * (outcome.end_s - outcome.asked_s),
        prompt_tokens=outcome.arrival.prompt_tokens,
    )


def tpot_ms(outcome: Outcome) -> float | None:
    """None of an answer of one token."""
    if outcome.tokens < 2 or outcome.first_s is None or outcome.end_s is None:
        return None
    return 1000.0 * (outcome.end_s - outcome.first_s) / (outcome.tokens - 1)


def _ttft_s(outcome: Outcome) -> float:
    return math.nan if outcome.first_s is None else outcome.first_s - outcome.asked_s


def _tpots_ms(outcomes: Sequence[Outcome]) -> list[float]:
    return [ms for ms in map(tpot_ms, outcomes) if ms is not None]


def _wait_s(outcome: Outcome) -> float:
    return 0.0 if outcome.released_s is None else outcome.released_s - outcome.asked_s


def _is_shed(outcome: Outcome) -> bool:
    return outcome.state in ("refused", "expired")


def _class(outcome: Outcome) -> str:
    return outcome.arrival.request_class


def _tenant(outcome: Outcome) -> str:
    return outcome.arrival.tenant


def _ratio(those: Sequence[Outcome], is_counted: Callable[[Outcome], bool]) -> float:
    return sum(map(is_counted, those)) / len(those) if those else math.nan


def _by(outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    out: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        out[key(outcome)].append(outcome)
    return dict(sorted(out.items()))


def _by_bucket(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    found = _by(outcomes, lambda o: BUCKETS[bisect_right(_EDGES_TOKENS, o.arrival.prompt_tokens)])
    return {name: found[name] for name in BUCKETS if name in found}


def _weighted_percentile(weights: Mapping[int, int], part: float) -> float:
    total, seen = sum(weights.values()), 0
    for value, weight in sorted(weights.items()):
        seen += weight
        if seen >= part * total:
            return float(value)
    return math.nan
