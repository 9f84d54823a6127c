"""Shared by the live experiment and the drills: an engine at a scale that two CPU cores can carry, a server for each
policy, and one run of load on it.

The synthetic scale: one request stands for eight of DeepSeek-V3 on 8 x H200 and makes half of the tokens, a prompt
token stands for two. So a decode step of 8 requests takes the 25.9 ms of 64, a chunk of 512 the time of 1024, and what
the engine can carry is a few hundred responses a second where the real one makes thousands: a Python client and a
server on the same two cores keep up with that, and a minute holds some hundred requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from seekserve_backend.step_log import STEP_LOG_VARIABLE

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
RECORDED_RPS = (1.0, 3.0, 6.0, 10.0)
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
REFERENCE_SLO = SloFile(
    name="conversation, for the tiny model on a CPU",
    classes={
        "interactive": ClassSlo(share=0.7, ttft_ms=1000.0, ttft_ms_per_token=1.0, tpot_ms=60.0),
        "offline": ClassSlo(share=0.3, e2e_ms=300_000.0),
    },
    chunk_tokens=256,
    max_tokens=128,
)
LIMITS = Limits(max_seq_len_tokens=20_000, max_batch_size=64, max_num_tokens=8192, prefill_chunk_tokens=CHUNK_TOKENS)
KV = KvCache(dtype="fp8_e4m3", block_tokens=64, capacity_blocks=4096, bytes_per_token=1)


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
            chunk_tokens=self.limits.prefill_chunk_tokens, kv_tokens=self.kv.capacity_blocks * self.kv.block_tokens
        )
        return Plant(self.model, options)


SYNTHETIC = Scale(slo=SLO, limits=LIMITS, kv=KV, model=MODEL, output_part=OUTPUT_PART)


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
    """A synthetic bundle, the backend, and for each policy a repository of its own; returns the bundle."""
    bundle = write_bundle(folder / "bundle")
    seekserve("install-backend", folder / "backends")
    render(folder, bundle, policies, SYNTHETIC)
    return bundle


def prepare_reference(folder: Path, policies: Sequence[str], trace: Path, *, skip: int, rows: int) -> Scale:
    """A bundle of the tiny checkpoint with the step model of this machine, fitted to the steps of a server under load.

    Prints what `seekserve calibrate` says.
    """
    bundle = folder / "bundle"
    seekserve("build-engine", TINY, "--out", bundle, "--max-num-tokens", 272)
    seekserve("install-backend", folder / "backends")
    log = folder / "steps.jsonl"
    # Any model will do to make the load that is recorded: fcfs asks for none.
    blind = reference_scale(bundle, MODEL)
    render(folder, bundle, ["fcfs"], blind)
    found = trace_rows(trace, skip=skip, rows=rows, scale=blind)
    with served(folder, "fcfs", {STEP_LOG_VARIABLE: str(log)}) as launch:
        for seed, rate in enumerate(RECORDED_RPS):
            arrivals = arrivals_for(found, rate, 20.0, 900 + seed, blind)
            recorded(launch.grpc_address, bundle, arrivals, Options(drain_s=5.0, seed=seed), scale=blind)
    print(seekserve("calibrate", bundle, "--samples", log, "--write"), flush=True)
    scale = reference_scale(bundle)
    shutil.rmtree(folder / _file_name("fcfs"))
    render(folder, bundle, policies, scale)
    return scale


def render(folder: Path, bundle: Path, policies: Sequence[str], scale: Scale) -> None:
    for policy in policies:
        file = folder / f"{_file_name(policy)}.yaml"
        file.write_text(candidate_for(policy, scale.slo).policy.to_json(), encoding="utf-8")
        seekserve("render", bundle, "--out", folder / _file_name(policy), "--name", "live", "--policy", file)


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
    """Poisson at this rate; the requests of each seed are other ones."""
    mine = list(rows[seed * 997 % len(rows) :]) + list(rows[: seed * 997 % len(rows)])
    needed = mine[: int(rate_rps * duration_s * 1.5) + 20]
    spaced = [replace(row, time_s=n / rate_rps) for n, row in enumerate(needed)]
    made = make_arrivals(spaced, scale.slo, Load(process="poisson", reuses_prefixes=False), seed=seed)
    mine_only = [each for each in made if each.time_s <= duration_s]
    if scale.lengths is Lengths.MAX:  # then the scheduler is told, live and simulated
        mine_only = [replace(each, max_tokens=each.output_tokens) for each in mine_only]
    return mine_only


def simulated(arrivals: Sequence[Arrival], policy: str, *, drain_s: float = 60.0, scale: Scale = SYNTHETIC) -> Figures:
    replica = Replica(candidate_for(policy, scale.slo).policy, scale.limits, scale.kv, scale.model, scale.plant())
    return figures_of(run(arrivals, [replica], drain_s=drain_s), scale)


def figures_of(done: Run, scale: Scale = SYNTHETIC) -> Figures:
    prices = Prices(scale.model, chunk_tokens=scale.limits.prefill_chunk_tokens)
    return measure(done, Context(slo=scale.slo, prices=prices, warmup_s=10.0))


def recorded(
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

    async def go() -> Recording:
        async with AsyncClient(address, "live", idle_timeout_s=timeout_s) as client:
            return await fire(client, shots, options)

    return asyncio.run(go())
