"""A server to break: the synthetic engine in the real tritonserver, at a scale that two CPU cores can carry.

The scale: one request stands for eight of DeepSeek-V3 on 8 x H200 and makes half of the tokens, a prompt token
stands for two. So a decode step of 8 requests takes the 25.9 ms of 64, a chunk of 512 the time of 1024, and what the
engine can carry is a few hundred responses a second where the real one makes thousands: a Python client and a server on
the same two cores keep up with that, and a minute holds some hundred requests.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seekserve.data import tiny_checkpoint_folder
from seekserve.server import Launch, LaunchOptions
from seekserve.settings import Settings
from seekserve.simulate.arrivals import Load, make_arrivals
from seekserve.simulate.policies import candidate_for
from seekserve.simulate.records import Arrival
from seekserve.simulate.slo import ClassSlo, SloFile
from seekserve.simulate.traces import TraceRow
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, BundleFile, KvCache, Limits, Parallel
from seekserve_backend.contract.step_model import StepModel

__all__ = [
    "CHUNK_TOKENS",
    "KV",
    "LIMITS",
    "MODEL",
    "MODEL_NAME",
    "SLO",
    "arrivals_for",
    "made_up_rows",
    "prepare",
    "render_policies",
    "served",
    "write_bundle",
]

MODEL_NAME = "live"
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
SLO = SloFile(
    name="conversation, scaled",
    classes={
        "interactive": ClassSlo(share=0.7, ttft_ms=1000.0, ttft_ms_per_token=0.25, tpot_ms=60.0),
        "offline": ClassSlo(share=0.3, e2e_ms=300_000.0),
    },
    chunk_tokens=CHUNK_TOKENS,
    max_tokens=500,
)
LIMITS = Limits(max_seq_len_tokens=20_000, max_batch_size=64, max_num_tokens=8192, prefill_chunk_tokens=CHUNK_TOKENS)
KV = KvCache(dtype="fp8_e4m3", block_tokens=64, capacity_blocks=4096, bytes_per_token=1)

# Medians and spreads of a public conversation trace, answers halved as the scale wants it.
_PROMPT = (1020.0, 0.5, 8000)
_OUTPUT = (65.0, 1.0, 500)


def write_bundle(folder: Path) -> Path:
    files: dict[str, BundleFile] = {}
    (folder / "tokenizer").mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        data = (tiny_checkpoint_folder() / name).read_bytes()
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


def prepare(folder: Path, policies: Sequence[str], slo: SloFile = SLO) -> Path:
    """A bundle, the backend, and for each policy a repository of its own; returns the bundle."""
    from seekserve.repository.installing import InstallRequest, run_install

    bundle = write_bundle(folder / "bundle")
    run_install(InstallRequest(backends_dir=folder / "backends"), Settings())
    render_policies(folder, bundle, policies, slo)
    return bundle


def render_policies(folder: Path, bundle: Path, policies: Sequence[str], slo: SloFile) -> None:
    """A repository for each, where `served` looks for it."""
    from seekserve.repository.publish import RenderRequest, publish

    for policy in policies:
        file = folder / f"{_file_name(policy)}.yaml"
        file.write_text(candidate_for(policy, slo).policy.to_json(), encoding="utf-8")
        out = folder / _file_name(policy)
        publish(RenderRequest(bundle=bundle, out=out, name=MODEL_NAME, policy=file), Settings())


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


def made_up_rows(count: int, *, seed: int = 0) -> list[TraceRow]:
    """Requests of a conversation's lengths, where there is no trace: log-normal, one a second."""
    lot = random.Random(f"soak-{seed}")

    def length(median: float, spread: float, most: int) -> int:
        return min(most, max(1, round(median * lot.lognormvariate(0.0, spread))))

    return [TraceRow(float(n), max(16, length(*_PROMPT)), length(*_OUTPUT)) for n in range(count)]


def arrivals_for(
    rows: Sequence[TraceRow], rate_rps: float, duration_s: float, seed: int, slo: SloFile = SLO
) -> list[Arrival]:
    """Poisson at this rate; the requests of each seed are other ones."""
    mine = list(rows[seed * 997 % len(rows) :]) + list(rows[: seed * 997 % len(rows)])
    needed = mine[: int(rate_rps * duration_s * 1.5) + 20]
    spaced = [replace(row, time_s=n / rate_rps) for n, row in enumerate(needed)]
    made = make_arrivals(spaced, slo, Load(process="poisson", reuses_prefixes=False), seed=seed)
    return [each for each in made if each.time_s <= duration_s]
