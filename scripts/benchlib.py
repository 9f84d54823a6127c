"""Shared by the serving benchmarks: temporary repositories, a server, a client that costs as little as Python allows.

The client sends pre-serialised requests and does not parse responses, so that what is measured is the server. Ratios
are taken pair by pair in one run: absolute times of shared machines mean little.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seekserve.server import Launch, LaunchOptions
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, BundleFile, KvCache, Limits, Parallel
from seekserve_backend.contract.step_model import StepModel

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "build" / "seekserve" / "data" / "tiny_deepseek_v3"
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def synthetic_bundle(
    folder: Path, *, name: str = "synthetic", max_batch_size: int = 64, step_model: StepModel | None = None
) -> Path:
    """A bundle of the engine without a model: real tokenizer, steps that cost nothing unless a model says what."""
    files: dict[str, BundleFile] = {}
    (folder / "tokenizer").mkdir(parents=True)
    for file_name in ("tokenizer.json", "tokenizer_config.json"):
        data = (TINY / file_name).read_bytes()
        (folder / "tokenizer" / file_name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        files[f"tokenizer/{file_name}"] = BundleFile(size_bytes=len(data), sha256=digest)
    bundle = Bundle(
        name=name,
        family="deepseek_v3",
        engine="synthetic",
        toolkit_version="0",
        engine_version="0",
        gpu=None,
        parallel=Parallel(),
        weights_dtype="none",
        weights_bytes=0,
        limits=Limits(
            max_seq_len_tokens=4096, max_batch_size=max_batch_size, max_num_tokens=8192, prefill_chunk_tokens=8192
        ),
        kv=KvCache(dtype="bf16", block_tokens=32, capacity_blocks=128 * max_batch_size, bytes_per_token=1),
        step_model=step_model,
        sources={},
        files=files,
    )
    (folder / BUNDLE_FILE).write_text(bundle.to_json(), encoding="utf-8")
    return folder


@contextmanager
def workspace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="seekserve-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def server(repository: Path, backends: Path, folder: Path) -> Iterator[Launch]:
    """A ready tritonserver on free loopback ports."""
    options = LaunchOptions(
        repository=repository,
        backend_dir=backends,
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        pid_file=folder / "launch.json",
        log_file=folder / "server.log",
    )
    with Launch(options, env=os.environ) as launch:
        launch.start()
        launch.wait_ready()
        yield launch


def encode_request(model: str, prompt: str, max_tokens: int, *, min_tokens: int = 0) -> bytes:
    """One serialised ModelInferRequest in the form that stock clients send."""
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name=model)
    values = (
        ("text_input", "BYTES", len(prompt.encode()).to_bytes(4, "little") + prompt.encode()),
        ("max_tokens", "INT32", max_tokens.to_bytes(4, "little")),
        ("stream", "BOOL", b"\x01"),
        ("min_tokens", "INT32", min_tokens.to_bytes(4, "little")),
    )
    for name, datatype, raw in values if min_tokens else values[:-1]:
        request.inputs.add(name=name, datatype=datatype, shape=[1, 1])
        request.raw_input_contents.append(raw)
    data: bytes = request.SerializeToString()
    return data


@dataclass(frozen=True)
class Tally:
    requests: int
    responses: int
    wall_s: float
    first_response_s: tuple[float, ...]

    @property
    def responses_per_s(self) -> float:
        return self.responses / self.wall_s


def drive(address: str, request: bytes, *, streams: int, requests: int) -> Tally:
    """`requests` in all over `streams` threads, each on its own channel; counts raw responses."""
    import grpc

    responses = [0] * streams
    firsts: list[list[float]] = [[] for _ in range(streams)]
    barrier = threading.Barrier(streams + 1)

    def run(n: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address, options=options) as channel:
            grpc.channel_ready_future(channel).result(timeout=30)
            call = channel.stream_stream(_STREAM)
            barrier.wait()
            for _ in range(requests // streams):
                started = time.perf_counter()
                first: float | None = None
                for _ in call(iter((request,)), timeout=120):
                    if first is None:
                        first = time.perf_counter() - started
                    responses[n] += 1
                firsts[n].append(first if first is not None else float("nan"))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(streams)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - started
    flat = tuple(f for per_stream in firsts for f in per_stream)
    return Tally(requests=len(flat), responses=sum(responses), wall_s=wall_s, first_response_s=flat)


@dataclass(frozen=True)
class Ratio:
    """a / b, pair by pair."""

    name: str
    a: tuple[float, ...]
    b: tuple[float, ...]

    def line(self, unit: str) -> str:
        ratios = sorted(x / y for x, y in zip(self.a, self.b, strict=True))
        return (
            f"{self.name}: ratio {statistics.median(ratios):.2f} "
            f"(min {ratios[0]:.2f}, max {ratios[-1]:.2f}, {len(ratios)} pairs); "
            f"medians {statistics.median(self.a):.4g} against {statistics.median(self.b):.4g} {unit}"
        )

    @property
    def median(self) -> float:
        return statistics.median(x / y for x, y in zip(self.a, self.b, strict=True))


def paired(name: str, a: Callable[[], float], b: Callable[[], float], *, pairs: int) -> Ratio:
    """A B A B ..., after one uncounted round of each."""
    a(), b()
    figures = [(a(), b()) for _ in range(pairs)]
    return Ratio(name, tuple(f[0] for f in figures), tuple(f[1] for f in figures))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def seekserve(*arguments: object) -> str:
    """Runs the command line as a user would, and returns what it printed; raises when it fails."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "seekserve", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
