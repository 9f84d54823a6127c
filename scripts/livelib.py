"""Shared by the live experiment and the drills: rows of a trace at the scale of an engine that two CPU cores can carry,
and one run of load on it, live or simulated. The synthetic engine's scale is that of `seekserve.monitor.soak.stand`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import TINY, seekserve
from seekserve.bench.openloop import Options, Recording, Shot, fire
from seekserve.bench.prompts import Lengths, Prompts, read_vocabulary
from seekserve.monitor.soak import stand
from seekserve.monitor.soak.stand import KV, LIMITS, MODEL, SLO, render_policies, served
from seekserve.simulate.measure import Context, Figures, measure
from seekserve.simulate.plant import Plant, PlantOptions
from seekserve.simulate.policies import candidate_for
from seekserve.simulate.price import Prices
from seekserve.simulate.records import Arrival, Run
from seekserve.simulate.replica import Replica
from seekserve.simulate.run import run
from seekserve.simulate.slo import ClassSlo, SloFile
from seekserve.simulate.traces import TraceRow, read_trace
from seekserve_backend.contract.bundle import Bundle, KvCache, Limits
from seekserve_backend.contract.step_model import StepModel
from seekserve_backend.step_log import STEP_LOG_VARIABLE

REFERENCE_SLO = SloFile(
    name="conversation, for the tiny model on a CPU",
    classes={
        "interactive": ClassSlo(share=0.7, ttft_ms=1000.0, ttft_ms_per_token=1.0, tpot_ms=60.0),
        "offline": ClassSlo(share=0.3, e2e_ms=300_000.0),
    },
    chunk_tokens=256,
    max_tokens=128,
)
# A step may hold one chunk beside a full batch, as the simulated engine does it.
REFERENCE_STEP_TOKENS = 272
RECORDED_RPS = (1.0, 3.0, 6.0, 10.0, 20.0)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An engine, what is asked of it, and what is promised."""

    slo: SloFile
    limits: Limits
    kv: KvCache
    model: StepModel
    output_part: int
    prompt_part: int = 1
    lengths: Lengths = Lengths.MIN
    """How the length of an answer is asked for."""

    def plant(self) -> Plant:
        options = PlantOptions(
            chunk_tokens=self.limits.prefill_chunk_tokens,
            kv_tokens=self.kv.capacity_blocks * self.kv.block_tokens,
            may_pause=self.kv.may_pause,
        )
        return Plant(self.model, options)


SYNTHETIC = Scale(slo=SLO, limits=LIMITS, kv=KV, model=MODEL, output_part=2)


def reference_scale(bundle: Path, model: StepModel | None = None) -> Scale:
    """Of a bundle of the tiny checkpoint, with its own step model or another: a quarter of the prompts, an eighth of
    the answers."""
    found = Bundle.load(bundle)
    model = model or found.step_model
    assert model is not None, "calibrate it first"
    return Scale(
        slo=REFERENCE_SLO,
        limits=found.limits,
        kv=found.kv,
        model=model,
        output_part=8,
        prompt_part=4,
        lengths=Lengths.MAX,
    )


def prepare_reference(folder: Path, trace: Path, *, skip: int, rows: int) -> Scale:
    """A bundle of the tiny checkpoint with the step model of this machine, fitted to the steps of a server under load.

    Prints what `seekserve calibrate` says.
    """
    bundle = folder / "bundle"
    seekserve("build-engine", TINY, "--out", bundle, "--max-num-tokens", REFERENCE_STEP_TOKENS)
    seekserve("install-backend", folder / "backends")
    log, recording = folder / "steps.jsonl", folder / "recording"
    recording.mkdir()
    (recording / "backends").symlink_to(folder / "backends")
    # Any model will do to make the load that is recorded: fcfs asks for none.
    blind = reference_scale(bundle, MODEL)
    render_policies(recording, bundle, ["fcfs"], blind.slo)
    found = trace_rows(trace, skip=skip, rows=rows, scale=blind)
    with served(recording, "fcfs", {STEP_LOG_VARIABLE: str(log)}) as launch:
        for seed, rate in enumerate(RECORDED_RPS):
            arrivals = arrivals_for(found, rate, 20.0, 900 + seed, blind)
            recorded(launch.grpc_address, bundle, arrivals, Options(drain_s=5.0, seed=seed), scale=blind)
    print(seekserve("calibrate", bundle, "--samples", log, "--write"), flush=True)
    return reference_scale(bundle)


def trace_rows(path: Path, *, skip: int, rows: int, scale: Scale = SYNTHETIC) -> list[TraceRow]:
    """With a part of the tokens; from the middle of the trace on, which no constant was tuned on."""
    found = read_trace(path, skip=skip, rows=rows).rows(0)
    most = scale.limits.max_seq_len_tokens - (scale.slo.max_tokens or 0) - 1
    return [
        replace(
            row,
            prompt_tokens=min(most, max(1, row.prompt_tokens // scale.prompt_part)),
            output_tokens=max(1, row.output_tokens // scale.output_part),
        )
        for row in found
    ]


def arrivals_for(
    rows: Sequence[TraceRow], rate_rps: float, duration_s: float, seed: int, scale: Scale = SYNTHETIC
) -> list[Arrival]:
    """As on the stand; where the server is told the length of an answer, so is the simulated scheduler."""
    made = stand.arrivals_for(rows, rate_rps, duration_s, seed, scale.slo)
    return [replace(each, max_tokens=each.output_tokens) for each in made] if scale.lengths is Lengths.MAX else made


def simulated(arrivals: Sequence[Arrival], policy: str, *, drain_s: float = 60.0, scale: Scale = SYNTHETIC) -> Figures:
    replica = Replica(candidate_for(policy, scale.slo).policy, scale.limits, scale.kv, scale.model, scale.plant())
    return figures_of(run(arrivals, [replica], drain_s=drain_s), scale)


def figures_of(done: Run, scale: Scale = SYNTHETIC) -> Figures:
    prices = Prices(scale.model, chunk_tokens=scale.limits.prefill_chunk_tokens)
    return measure(done, Context(slo=scale.slo, prices=prices, warmup_s=10.0))


async def send(
    address: str,
    bundle: Path,
    arrivals: Sequence[Arrival],
    options: Options,
    *,
    timeout_s: float = 120.0,
    as_text: bool = False,
    scale: Scale = SYNTHETIC,
) -> Recording:
    """One run of load on the server at `address`. Offline requests are not streamed, as batch clients do it."""
    from seekserve.client import AsyncClient

    vocabulary = None if as_text else read_vocabulary(bundle)
    prompts = Prompts(vocabulary, seed=options.seed, lengths=scale.lengths)
    shots = [
        Shot(each, prompts.request_for(each, stream=not scale.slo.classes[each.request_class].is_offline))
        for each in arrivals
    ]
    async with AsyncClient(address, "live", idle_timeout_s=timeout_s) as client:
        return await fire(client, shots, options)


def recorded(
    address: str,
    bundle: Path,
    arrivals: Sequence[Arrival],
    options: Options,
    *,
    as_text: bool = False,
    scale: Scale = SYNTHETIC,
) -> Recording:
    return asyncio.run(send(address, bundle, arrivals, options, as_text=as_text, scale=scale))
