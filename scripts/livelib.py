"""Shared by the live experiment and the drills: rows of a trace at the scale of `seekserve.monitor.soak.stand`, the
synthetic engine that two CPU cores can carry, and one run of load on it, live or simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seekserve.bench.openloop import Options, Recording, Shot, fire
from seekserve.bench.prompts import Lengths, Prompts, read_vocabulary
from seekserve.monitor.soak.stand import CHUNK_TOKENS, KV, LIMITS, MODEL, SLO
from seekserve.simulate.measure import Context, Figures, measure
from seekserve.simulate.plant import Plant, PlantOptions
from seekserve.simulate.policies import candidate_for
from seekserve.simulate.price import Prices
from seekserve.simulate.records import Arrival, Run
from seekserve.simulate.replica import Replica
from seekserve.simulate.run import run
from seekserve.simulate.traces import TraceRow, read_trace

OUTPUT_PART = 2


def trace_rows(path: Path, *, skip: int, rows: int) -> list[TraceRow]:
    """With a part of the output tokens; from the middle of the trace on, which no constant was tuned on."""
    found = read_trace(path, skip=skip, rows=rows).rows(0)
    return [replace(row, output_tokens=max(1, row.output_tokens // OUTPUT_PART)) for row in found]


def simulated(arrivals: Sequence[Arrival], policy: str, *, drain_s: float = 60.0) -> Figures:
    plant = Plant(MODEL, PlantOptions(chunk_tokens=CHUNK_TOKENS, kv_tokens=KV.capacity_blocks * KV.block_tokens))
    replica = Replica(candidate_for(policy, SLO).policy, LIMITS, KV, MODEL, plant)
    return figures_of(run(arrivals, [replica], drain_s=drain_s))


def figures_of(done: Run) -> Figures:
    return measure(done, Context(slo=SLO, prices=Prices(MODEL, chunk_tokens=CHUNK_TOKENS), warmup_s=10.0))


async def send(
    address: str,
    bundle: Path,
    arrivals: Sequence[Arrival],
    options: Options,
    *,
    timeout_s: float = 120.0,
    as_text: bool = False,
) -> Recording:
    """One run of load on the server at `address`. Offline requests are not streamed, as batch clients do it."""
    from seekserve.client import AsyncClient

    vocabulary = None if as_text else read_vocabulary(bundle)
    prompts = Prompts(vocabulary, seed=options.seed, lengths=Lengths.MIN)
    shots = [
        Shot(each, prompts.request_for(each, stream=not SLO.classes[each.request_class].is_offline))
        for each in arrivals
    ]
    async with AsyncClient(address, "live", idle_timeout_s=timeout_s) as client:
        return await fire(client, shots, options)


def recorded(
    address: str, bundle: Path, arrivals: Sequence[Arrival], options: Options, *, as_text: bool = False
) -> Recording:
    return asyncio.run(send(address, bundle, arrivals, options, as_text=as_text))
