"""Shared by the live experiment and the drills: a synthetic engine at a scale that two CPU cores can carry, a server
for each policy, and one run of load on it.

The scale: one request stands for eight of DeepSeek-V3 on 8 x H200 and makes half of the tokens, a prompt token
stands for two. So a decode step of 8 requests takes the 25.9 ms of 64, a chunk of 512 the time of 1024, and what the
engine can carry is a few hundred responses a second where the real one makes thousands: a Python client and a server on
the same two cores keep up with that, and a minute holds some hundred requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import TINY, seekserve
from seekserve.bench.openloop import Options, Recording, Shot, fire
from seekserve.bench.prompts import Lengths, Prompts, read_vocabulary
from seekserve.server import Launch, LaunchOptions
from seekserve.simulate.arrivals import Load, make_arrivals
from seekserve.simulate.measure import Context, Figures, measure
from seekserve.simulate.plant import Plant, PlantOptions
from seekserve.simulate.policies import candidate_for
from seekserve.simulate.price import Prices
from seekserve.simulate.records import Arrival, Run
from seekserve.simulate.replica import Replica
from seekserve.simulate.run import run
from seekserve.simulate.slo import ClassSlo, SloFile
from seekserve.simulate.traces import TraceRow, read_trace
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, BundleFile, KvCache, Limits, Parallel
from seekserve_backend.contract.step_model import StepModel

MODEL = StepModel(
    base_points=(
        (1, 14.0),
        (2, 16.5),
        (4, 21.3),
        (8, 25.9),
        (16, 29.3),
        (32, 36.0),
        (256, 50.1),
        (500, 62.7),
        (1000, 93.9),
        (2000, 154.5),
        (4000, 282.0),
    ),
    kv_read_ms_per_token=9.0e-5,
    attention_ms_per_token2=1.68e-6,
    source="DeepSeek-V3 on 8 x H200, predicted, scaled down for two CPU cores",
)
CHUNK_TOKENS = 512
OUTPUT_PART = 2
SLO = SloFile(
    name="conversation, scaled",
    classes={
        "interactive": ClassSlo(share=0.7, ttft_ms=1000.0, ttft_ms_per_token=0.25, tpot_ms=60.0),
        "offline": ClassSlo(share=0.3, e2e_ms=300_000.0),
    },
    chunk_tokens=CHUNK_TOKENS,
    max_tokens=1000 // OUTPUT_PART,
)
LIMITS = Limits(max_seq_len_tokens=20_000, max_batch_size=64, max_num_tokens=8192, prefill_chunk_tokens=CHUNK_TOKENS)
KV = KvCache(dtype="fp8_e4m3", block_tokens=64, capacity_blocks=4096, bytes_per_token=1)


def write_bundle(folder: Path) -> Path:
    files: dict[str, BundleFile] = {}
    (folder / "tokenizer").mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        data = (TINY / name).read_bytes()
        (folder / "tokenizer" / name).write_bytes(data)
        files[f"tokenizer/{name}"] = BundleFile(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    bundle = Bundle(
        name="synthetic",
        family="deepseek_v3",
        engine="synthetic",
        toolkit_version="0",
        engine_version="0",
        gpu=None,
        parallel=Parallel(),
        weights_dtype="none",
        weights_bytes=0,
        limits=LIMITS,
        kv=KV,
        step_model=MODEL,
        sources={},
        files=files,
    )
    (folder / BUNDLE_FILE).write_text(bundle.to_json(), encoding="utf-8")
    return folder


def prepare(folder: Path, policies: Sequence[str]) -> Path:
    """A bundle, the backend, and for each policy a repository of its own; returns the bundle."""
    bundle = write_bundle(folder / "bundle")
    seekserve("install-backend", folder / "backends")
    for policy in policies:
        file = folder / f"{_file_name(policy)}.yaml"
        file.write_text(candidate_for(policy, SLO).policy.to_json(), encoding="utf-8")
        seekserve("render", bundle, "--out", folder / _file_name(policy), "--name", "live", "--policy", file)
    return bundle


def _file_name(policy: str) -> str:
    return "repository-" + policy.replace(":", "-")


@contextmanager
def served(
    folder: Path, policy: str, environment: Mapping[str, str] | None = None, *, engine_stall_s: float = 60.0
) -> Iterator[Launch]:
    """A fresh server, so that every run begins with an engine that has learnt nothing."""
    options = LaunchOptions(
        repository=folder / _file_name(policy),
        backend_dir=folder / "backends",
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        pid_file=folder / "launch.json",
        log_file=folder / "server.log",
        engine_stall_s=engine_stall_s,
    )
    with Launch(options, env={**os.environ, **(environment or {})}) as launch:
        launch.start()
        launch.wait_ready()
        yield launch


def trace_rows(path: Path, *, skip: int, rows: int) -> list[TraceRow]:
    """With a part of the output tokens; from the middle of the trace on, which no constant was tuned on."""
    found = read_trace(path, skip=skip, rows=rows).rows(0)
    return [replace(row, output_tokens=max(1, row.output_tokens // OUTPUT_PART)) for row in found]


def arrivals_for(rows: Sequence[TraceRow], rate_rps: float, duration_s: float, seed: int) -> list[Arrival]:
    """Poisson at this rate; the requests of each seed are other ones."""
    mine = list(rows[seed * 997 % len(rows) :]) + list(rows[: seed * 997 % len(rows)])
    needed = mine[: int(rate_rps * duration_s * 1.5) + 20]
    spaced = [replace(row, time_s=n / rate_rps) for n, row in enumerate(needed)]
    made = make_arrivals(spaced, SLO, Load(process="poisson", reuses_prefixes=False), seed=seed)
    return [each for each in made if each.time_s <= duration_s]


def simulated(arrivals: Sequence[Arrival], policy: str, *, drain_s: float = 60.0) -> Figures:
    plant = Plant(MODEL, PlantOptions(chunk_tokens=CHUNK_TOKENS, kv_tokens=KV.capacity_blocks * KV.block_tokens))
    replica = Replica(candidate_for(policy, SLO).policy, LIMITS, KV, MODEL, plant)
    return figures_of(run(arrivals, [replica], drain_s=drain_s))


def figures_of(done: Run) -> Figures:
    return measure(done, Context(slo=SLO, prices=Prices(MODEL, chunk_tokens=CHUNK_TOKENS), warmup_s=10.0))


def recorded(
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

    async def go() -> Recording:
        async with AsyncClient(address, "live", idle_timeout_s=timeout_s) as client:
            return await fire(client, shots, options)

    return asyncio.run(go())
