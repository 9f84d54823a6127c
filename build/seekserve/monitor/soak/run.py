"""The three sizes: a smoke and a load on a server that runs, a drill on one of its own or on one that may be broken."""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seekserve.bench.openloop import Options, Recording, Shot, fire
from seekserve.bench.prompts import Lengths, Prompts, read_vocabulary
from seekserve.bench.results import LiveResult, judge
from seekserve.bench.session import Question, measure_once
from seekserve.errors import InputError, SeekserveError
from seekserve.monitor.reading import INSIDE, Scrape
from seekserve.monitor.sources import scrape
from seekserve.monitor.window import windows_of
from seekserve.server.record import LaunchRecord
from seekserve.simulate.records import Arrival
from seekserve.simulate.slo import SloFile
from seekserve.simulate.traces import TraceRow, read_trace

from . import stand
from .checks import Bounds, Check, books_check, drill_checks, overload_checks, planned_checks
from .drills import Drill, Seen, kill_stubs, run_drill
from .report import Phase, Report

__all__ = ["DRILL_RATE_RPS", "DURATIONS_S", "Ask", "own_drills", "soak_server"]

DURATIONS_S = {"smoke": 60.0, "load": 600.0, "drill": 70.0}
"""Of the planned load; of each drill."""
DRILL_RATE_RPS = 2.7
_OVERLOAD, _OVERLOAD_PART, _AFTER_PART = 2.0, 0.2, 0.2
_FAULT_PART = 2.0 / 7.0
_DRILL_WARMUP_S = 10.0
# Longer than anything that is promised by default (offline work: 300 s): what has no answer by then never will.
PATIENCE_S = 330.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """How a running server is tried. `question`: at the planned load."""

    size: str
    question: Question
    slo: SloFile
    bounds: Bounds
    metrics_url: str | None = None
    """None: its books are not looked at."""
    record: LaunchRecord | None = None
    may_break: bool = False


def soak_server(ask: Ask, progress: Progress) -> Report:
    """Smoke, load, or the one drill that any launch can be put through."""
    phases = (_drill_of_theirs if ask.size == "drill" else _planned_phases)(ask, progress)
    model, url = phases[0].result.model, phases[0].result.url
    return Report(size=ask.size, subject=f"{model} at {url}", slo=ask.slo.name, phases=tuple(phases))


def _planned_phases(ask: Ask, progress: Progress) -> list[Phase]:
    planned = _phase(ask, "planned", "the load that was planned", 1.0, 1.0, progress)
    if ask.size == "smoke":
        return [planned]
    over_text = f"{_OVERLOAD:g} times the planned load"
    over = _phase(ask, "overload", over_text, _OVERLOAD, _OVERLOAD_PART, progress, planned=planned.result)
    after = _phase(ask, "after", "the planned load again", 1.0, _AFTER_PART, progress)
    return [planned, over, after]


def _phase(
    ask: Ask,
    name: str,
    does: str,
    factor: float,
    part: float,
    progress: Progress,
    *,
    planned: LiveResult | None = None,
) -> Phase:
    question = replace(_at(ask.question, factor, part, DURATIONS_S[ask.size]), label=name)
    before = _books(ask.metrics_url)
    result = measure_once(question, lambda text: progress(f"{name}: {text}" if text else ""))
    after = _books(ask.metrics_url)
    if planned is None:
        checks = planned_checks(result, ask.slo, ask.bounds)
    else:
        checks = overload_checks(result, planned, ask.bounds)
    if ask.metrics_url is not None:
        checks.append(_books_check(before, after, result))
    return Phase(name=name, does=does, result=result, checks=tuple(checks))


def _at(question: Question, factor: float, part: float, default_s: float) -> Question:
    rate, speed = question.rate, question.speed
    if question.trace is None or rate is not None:
        rate = (rate or 1.0) * factor
    else:
        speed = (speed or 1.0) * factor
    return replace(question, rate=rate, speed=speed, duration_s=max((question.duration_s or default_s) * part, 1.0))


def _books(url: str | None) -> Scrape | None:
    """At a moment when a flush is over: numbers are a second old at most."""
    if url is None:
        return None
    try:
        time.sleep(2.5)
        return scrape(url)
    except SeekserveError:
        return None


def _books_check(before: Scrape | None, after: Scrape | None, result: LiveResult) -> Check:
    found = [] if before is None or after is None else windows_of([before, after])
    window = next((each for each in found if each.model == result.model and len(each.times_s) == 2), None)
    if window is None:
        return books_check(None, None, None, result.recording.sent)
    inside = [window.now(name) for name in INSIDE]
    was_inside = [sum(window.numbers[0].values.get(name, {}).values()) for name in INSIDE]
    grown = None if all(each is None for each in inside) else sum(each or 0.0 for each in inside) - sum(was_inside)
    offered = window.increase("requests_offered_total")
    return books_check(offered, window.increase("requests_ended_total"), grown, result.recording.sent)


def _drill_of_theirs(ask: Ask, progress: Progress) -> list[Phase]:
    """SIGKILL to the processes that serve a launch of this machine, which its own supervision has to get over."""
    record = ask.record
    if record is None or not ask.may_break:
        raise InputError(
            "a drill of a running server kills the process that serves it",
            hint="say so with --may-break and name the launch with --id or --pid-file; without both, --size drill "
            "starts a server of its own",
        )
    question = _at(ask.question, 1.0, 1.0, DURATIONS_S["drill"])
    duration_s = question.duration_s or DURATIONS_S["drill"]
    struck: list[float] = []

    def strike() -> None:
        struck.append(time.perf_counter())
        kill_stubs(Path(record.run_dir))

    timer = threading.Timer(duration_s * _FAULT_PART, strike)
    timer.start()
    try:
        result = measure_once(question, lambda text: progress(f"kill: {text}" if text else ""))
    finally:
        timer.cancel()
    fault_s = struck[0] - result.recording.started_s if struck else math.inf
    judged = judge(
        result.recording,
        ask.slo,
        label="kill",
        trace=result.trace,
        url=result.url,
        model=result.model,
        surge_s=(fault_s, fault_s),
        warmup_s=_DRILL_WARMUP_S,
    )
    checks = drill_checks(judged, ask.bounds, warmup_s=0.0, fault_s=fault_s)
    return [Phase(name="kill", does="SIGKILL to the process that serves", result=judged, checks=tuple(checks))]


def own_drills(
    drills: Sequence[Drill],
    *,
    slo: SloFile | None,
    bounds: Bounds,
    rate: float | None,
    duration_s: float | None,
    trace: Path | None,
    seed: int,
    progress: Progress,
) -> Report:
    """Each drill on a fresh server with the synthetic engine, at a scale that two cores can carry (`stand`)."""
    slo = stand.SLO if slo is None else replace(slo, chunk_tokens=stand.CHUNK_TOKENS)
    lasts_s, per_s = duration_s or DURATIONS_S["drill"], rate or DRILL_RATE_RPS
    rows = stand.made_up_rows(2000, seed=seed) if trace is None else _scaled(trace)
    folder = Path(tempfile.mkdtemp(prefix="seekserve-soak-"))
    try:
        bundle = stand.prepare(folder, ["paced"], slo)
        phases = []
        for n, drill in enumerate(drills):
            progress(f"drill {drill.name}: {drill.does}")
            arrivals = stand.arrivals_for(rows, per_s, lasts_s, seed + n, slo)

            def send(
                address: str, arrivals: Sequence[Arrival] = arrivals, number: int = n
            ) -> Coroutine[Any, Any, Recording]:
                return _sent(address, bundle, arrivals, slo, seed + number)

            seen = run_drill(drill, folder, send, fault_at_s=lasts_s * _FAULT_PART)
            phases.append(_drilled(drill, seen, slo, bounds))
        progress("")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    subject = "a server of its own with the synthetic engine"
    return Report(size="drill", subject=subject, slo=slo.name, phases=tuple(phases))


def _scaled(trace: Path) -> list[TraceRow]:
    """Answers halved, as the scale of the stand wants it."""
    rows = read_trace(trace).rows(0)
    return [replace(row, output_tokens=max(1, row.output_tokens // 2)) for row in rows]


async def _sent(address: str, bundle: Path, arrivals: Sequence[Arrival], slo: SloFile, seed: int) -> Recording:
    from seekserve.client import AsyncClient

    prompts = Prompts(read_vocabulary(bundle), seed=seed, lengths=Lengths.MIN)
    shots = [
        Shot(each, prompts.request_for(each, stream=not slo.classes[each.request_class].is_offline))
        for each in arrivals
    ]
    async with AsyncClient(address, stand.MODEL_NAME, idle_timeout_s=PATIENCE_S) as client:
        return await fire(client, shots, Options(drain_s=PATIENCE_S, seed=seed))


def _drilled(drill: Drill, seen: Seen, slo: SloFile, bounds: Bounds) -> Phase:
    fault_s = seen.fault_s
    result = judge(
        seen.recording,
        slo,
        label=drill.name,
        trace="drill",
        url="a server of its own",
        model=stand.MODEL_NAME,
        surge_s=(fault_s, fault_s),
        step_model=stand.MODEL,
        warmup_s=_DRILL_WARMUP_S,
    )
    acted_s = seen.acted_s - seen.struck_s
    facts = (
        ("first client told after", "nobody was" if math.isnan(seen.told_s) else f"{seen.told_s:.2f} s"),
        ("launch acted after", "it had not to" if math.isnan(acted_s) else f"{acted_s:.1f} s: {seen.trouble}"),
    )
    checks = drill_checks(result, bounds, warmup_s=0.0, fault_s=fault_s)
    return Phase(name=drill.name, does=drill.does, result=result, checks=tuple(checks), facts=facts)
