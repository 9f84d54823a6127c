"""A measurement as it is asked for on the command line: one run, a search for the knee, or the ladder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seekserve.errors import InputError
from seekserve.simulate.arrivals import Load, parse_shares, surge_window_s
from seekserve.simulate.records import Clients
from seekserve.simulate.slo import SloFile, read_slo
from seekserve.simulate.traces import parse_columns

from .knee import Knee, find_knee
from .ladder import Cell, climb
from .load import DEFAULT_SLO, Source, arrivals_at, fixed_source, trace_source
from .openloop import Options, Recording, Shot, fire
from .prompts import Lengths, Prompts, Vocabulary, read_vocabulary
from .results import LiveResult, judge

if TYPE_CHECKING:
    from seekserve.client import AsyncClient
    from seekserve_backend.contract.step_model import StepModel

__all__ = ["Question", "climb_ladder", "measure_once", "search_knee"]

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One field for each option of `seekserve bench`, of the same name; the options hold the defaults."""

    url: str
    model: str | None
    label: str
    trace: Path | None
    columns: str | None
    rows: int | None
    skip_rows: int
    rate: float | None
    speed: float | None
    duration_s: float | None
    prompt_tokens: int
    output_tokens: int
    slo: Path | None
    process: str
    gap_cv: float
    surge_factor: float
    surge_s: float
    tenants: str | None
    bundle: Path | None
    lengths: str
    retries: int
    ignore_hint: bool
    patience_s: float | None
    cancel_share: float
    cancel_after_s: float
    drain_s: float
    timeout_s: float
    seed: int


class _Session:
    """What all runs of one measurement share."""

    def __init__(self, ask: Question) -> None:
        if ask.rate is not None and ask.speed is not None:
            raise InputError("--rate and --speed both say how fast requests come; give one")
        if ask.trace is None and ask.speed is not None:
            raise InputError("--speed is relative to a trace; give --trace, or --rate without one")
        self.ask = ask
        self.slo: SloFile = DEFAULT_SLO if ask.slo is None else read_slo(ask.slo)
        self.vocabulary: Vocabulary | None = None
        self.step_model: StepModel | None = None
        if ask.bundle is not None:
            self.vocabulary = read_vocabulary(ask.bundle)
            self.step_model = _step_model(ask.bundle)

    def prompts(self) -> Prompts:
        return Prompts(self.vocabulary, seed=self.ask.seed, lengths=Lengths(self.ask.lengths))

    def source(self, rate: float | None) -> Source:
        ask = self.ask
        if ask.trace is not None:
            columns = parse_columns(ask.columns) if ask.columns else None
            return trace_source(ask.trace, columns, seed=ask.seed, skip=ask.skip_rows, rows=ask.rows)
        wanted = ask.rows or int((ask.duration_s or 60.0) * (rate or 1.0) * 1.5) + 10
        return fixed_source(prompt_tokens=ask.prompt_tokens, output_tokens=ask.output_tokens, requests=wanted)

    def speed(self, source: Source, rate: float | None) -> float:
        return self.ask.speed or 1.0 if rate is None else rate / source.rate_rps

    def load(self, speed: float) -> Load:
        ask = self.ask
        return Load(
            speed=speed,
            process=ask.process,
            gap_cv=ask.gap_cv,
            factor=ask.surge_factor,
            period_s=ask.surge_s,
            tenants=parse_shares(ask.tenants) if ask.tenants else None,
        )

    def client(self) -> AsyncClient:
        from seekserve.client import AsyncClient

        return AsyncClient(self.ask.url, self.ask.model, idle_timeout_s=self.ask.timeout_s)

    async def run(self, rate: float | None, progress: Progress) -> LiveResult:
        ask = self.ask
        source = self.source(rate)
        load = self.load(self.speed(source, rate))
        arrivals = arrivals_at(source, self.slo, load, seed=ask.seed, duration_s=ask.duration_s)
        prompts = self.prompts()
        shots = [
            # Batch clients, who are promised an end and no first token, do not stream.
            Shot(
                each,
                prompts.request_for(
                    each,
                    stream=not self.slo.classes[each.request_class].is_offline,
                    has_classes=ask.slo is not None,
                ),
            )
            for each in arrivals
        ]
        clients = Clients(retries=ask.retries, honours_hint=not ask.ignore_hint, patience_s=ask.patience_s)
        options = Options(
            clients=clients,
            cancel_share=ask.cancel_share,
            cancel_after_s=ask.cancel_after_s,
            drain_s=ask.drain_s,
            seed=ask.seed,
        )
        last_s = arrivals[-1].time_s
        async with self.client() as client:
            await client.metadata()  # nobody there is an error, not a result
            recording = await fire(client, shots, options, progress=lambda now, r: progress(_line(now, last_s, r)))
            model = await client.model()
        return judge(
            recording,
            self.slo,
            label=ask.label,
            trace=source.name,
            speed=load.speed,
            seed=ask.seed,
            arrivals=ask.process,
            url=ask.url,
            model=model,
            surge_s=surge_window_s(source.rows, load),
            step_model=self.step_model,
        )


def measure_once(ask: Question, progress: Progress) -> LiveResult:
    return asyncio.run(_Session(ask).run(ask.rate, progress))


def search_knee(ask: Question, *, share: float, progress: Progress) -> tuple[Knee, list[LiveResult]]:
    """Starts at the rate asked for, or at the trace's own."""
    session = _Session(replace(ask, speed=None))
    start = ask.rate if ask.rate is not None else session.source(None).rate_rps * (ask.speed or 1.0)
    results: list[LiveResult] = []

    def attainment_at(rate: float) -> float:
        progress(f"{rate:.3f} requests/s")
        result = asyncio.run(session.run(rate, progress))
        results.append(result)
        return result.figures.attainment

    return find_knee(attainment_at, start, share=share), results


def climb_ladder(ask: Question, *, rounds: int, progress: Progress) -> list[Cell]:
    session = _Session(ask)

    async def go() -> list[Cell]:
        async with session.client() as client:
            await client.metadata()
            return await climb(
                client, session.prompts(), output_tokens=ask.output_tokens, rounds=rounds, progress=progress
            )

    return asyncio.run(go())


def _step_model(bundle: Path) -> StepModel | None:
    from seekserve.plan.bundle import open_bundle
    from seekserve_backend.contract.bundle import BUNDLE_FILE

    return open_bundle(bundle).step_model if (bundle / BUNDLE_FILE).is_file() else None


def _line(now: float, last_s: float, recording: Recording) -> str:
    ended = sum(outcome.state == "finished" for outcome in recording.outcomes)
    lag_ms = max(recording.send_lag_ms[-50:], default=0.0)
    return (
        f"{now:6.0f} s of {last_s:.0f}  sent {recording.sent} of {len(recording.outcomes)}  open {recording.open}  "
        f"finished {ended}  refused {len(recording.refusals)}  worst lag {lag_ms:.0f} ms"
    )
