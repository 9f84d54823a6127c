"""A simulation as it is asked for on the command line: texts and paths turned into cases, faults named by flag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import InputError

from .arrivals import Load, parse_shares
from .catalogue import engine_for
from .policies import Candidate, candidate_for
from .records import Clients
from .slo import SloFile, read_slo
from .sweep import Case, cases
from .traces import Trace, parse_columns, read_trace

__all__ = ["DEFAULT_ENGINE", "Question", "cases_for"]

DEFAULT_ENGINE = "DeepSeek-V3 / R1 FP8, 8 x H200, TP 8, EP 8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One field for each option of `seekserve simulate`, of the same name; the options hold the defaults."""

    traces: Sequence[Path]
    slos: Sequence[Path]
    columns: str | None
    policies: str
    speeds: str
    seeds: int
    rows: int | None
    skip_rows: int
    process: str
    gap_cv: float
    surge_factor: float
    surge_s: float
    tenants: str | None
    long_share: float
    engine: str
    controller: str | None
    no_model: bool
    kv_tokens: int
    max_batch_size: int
    capacity_policy: str | None
    slowdown: float
    slow_from: float
    noise: float
    stall_at_s: float | None
    stall_s: float
    fail_at_s: Sequence[float]
    draft_tokens: int
    acceptance: float
    no_prefix_reuse: bool
    retries: int
    ignore_hint: bool
    patience_s: float | None
    replicas: int
    router: str
    has_samples: bool


def cases_for(ask: Question) -> list[Case]:
    """Raises InputError, or ConfigError for a file with faults."""
    chosen = _traces(ask)
    speeds = _numbers(ask.speeds)

    def candidates(slo: SloFile) -> list[Candidate]:
        return [candidate_for(spec.strip(), slo) for spec in ask.policies.split(",")]

    trace, slo = chosen[0]
    base = Case(
        trace=trace,
        slo=slo,
        candidate=candidates(slo)[0],
        engine=engine_for(
            ask.engine,
            controller=ask.controller,
            knows_model=not ask.no_model,
            kv_tokens=ask.kv_tokens,
            max_batch_size=ask.max_batch_size,
            may_pause=None if ask.capacity_policy is None else ask.capacity_policy == "MAX_UTILIZATION",
            slowdown=ask.slowdown,
            slow_from_part=ask.slow_from,
            noise=ask.noise,
            stall_at_s=ask.stall_at_s,
            stall_s=ask.stall_s,
            fail_at_s=tuple(sorted(ask.fail_at_s)),
            draft_tokens=ask.draft_tokens,
            acceptance=ask.acceptance,
        ),
        load=Load(
            process=ask.process,
            gap_cv=ask.gap_cv,
            factor=ask.surge_factor,
            period_s=ask.surge_s,
            tenants=parse_shares(ask.tenants) if ask.tenants else None,
            reuses_prefixes=not ask.no_prefix_reuse,
            long_share=ask.long_share,
        ),
        clients=Clients(retries=ask.retries, honours_hint=not ask.ignore_hint, patience_s=ask.patience_s),
        replicas=ask.replicas,
        router=ask.router,
        sample_every_s=1.0 if ask.has_samples else None,
    )
    return list(cases(chosen, candidates, base, speeds=speeds, seeds=range(ask.seeds)))


def _traces(ask: Question) -> list[tuple[Trace, SloFile]]:
    if len(ask.slos) not in (1, len(ask.traces)):
        raise InputError(
            f"--slo is given {len(ask.slos)} times for {len(ask.traces)} traces", hint="give one for all, or one each"
        )
    columns = parse_columns(ask.columns) if ask.columns else None
    read = [read_trace(path, columns, skip=ask.skip_rows, rows=ask.rows) for path in ask.traces]
    names = [trace.name for trace in read]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"two traces are named {twice[0]}; their results could not be told apart")
    slos = [read_slo(path) for path in ask.slos]
    return list(zip(read, slos * (len(read) // len(slos)), strict=True))


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(0.0 < number < 1e6 for number in numbers):
        raise InputError(f"--speed {text!r} is not a list of numbers above 0", hint="for example 1,1.5,2")
    return numbers
