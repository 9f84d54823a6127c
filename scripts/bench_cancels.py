#!/usr/bin/env python
"""How soon the service answers cancels of queued work, and what noticing them costs, with 10,000 requests queued.

    python scripts/bench_cancels.py [--queued 10000] [--cancels 200] [--ask-us 90]

Two ways to cancel. Explicit: a request with `resume_token` and `resume_cancel`, timed from its arrival to the answer of
the request that it ends; the target is 100 ms, exit 1 when it is missed. Leaving: the client is gone, which the service
has to find out by asking; Triton's question is played by a sink that takes `--ask-us` of processor time (90 us were
measured in its stub). The service is the real one, with its threads; the engine is full and does nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import percentile
from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import ClassPolicy, Policy
from seekserve_backend.contract.refusal import ErrorLine
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.engines.port import EngineInfo, EngineStepReport
from seekserve_backend.engines.synthetic import SyntheticEngine
from seekserve_backend.service import Service
from seekserve_backend.text.token_bytes import TokenBytes, VocabKind

FAR_MS = 2**30
TARGET_MS = 100.0
LIMITS = Limits(max_seq_len_tokens=128, max_batch_size=64, max_num_tokens=8192, prefill_chunk_tokens=1024)
KV = KvCache(dtype="fp8", block_tokens=32, capacity_blocks=1000, bytes_per_token=1)


class FullEngine(SyntheticEngine):
    """Takes a batch and never ends it."""

    def step(self, timeout_s: float) -> EngineStepReport:
        time.sleep(0.01)
        return EngineStepReport(step_ms=10.0, batch_size=LIMITS.max_batch_size, prefill_tokens=0)


class Client:
    """A sink that is as dear to ask as Triton's, and remembers when it was answered."""

    def __init__(self, ask_s: float) -> None:
        self._ask_s = ask_s
        self.has_left = False
        self.token: str | None = None
        self.ended_s: float | None = None
        self.ended = threading.Event()

    def send(self, chunk: Chunk) -> None:
        self.token = chunk.resume_token or self.token
        if chunk.finish_reason is not None:
            self._end()

    def error(self, line: ErrorLine) -> None:
        self._end()

    def is_cancelled(self) -> bool:
        until_s = time.perf_counter() + self._ask_s
        while time.perf_counter() < until_s:
            pass
        return self.has_left

    def hold_s(self) -> float:
        return 0.0

    def _end(self) -> None:
        self.ended_s = time.perf_counter()
        self.ended.set()


def make_service() -> Service:
    rules = ClassPolicy(priority=0, max_queue_requests=FAR_MS, deadline_ms=FAR_MS)
    policy = Policy(classes={"interactive": rules}, max_intake_requests=FAR_MS)
    info = EngineInfo(
        kind="synthetic",
        max_seq_len_tokens=LIMITS.max_seq_len_tokens,
        max_batch_size=LIMITS.max_batch_size,
        block_tokens=KV.block_tokens,
        kv_total_blocks=KV.capacity_blocks,
        vocab_size=256,
        eos_ids=(),
    )
    return Service(
        scheduler=Scheduler(policy, LIMITS, KV),
        policy=policy,
        engine_factory=lambda: FullEngine(info, token_id=0, chunk_tokens=1024),
        encode=lambda inbound: tuple(inbound.text or b""),
        vocabulary=TokenBytes([f"<0x{b:02X}>" for b in range(256)], (), VocabKind.SENTENCEPIECE),
    )


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.perf_counter() + 120.0
    while not holds():
        if time.perf_counter() > deadline_s:
            raise SystemExit(f"it did not come to this in 120 s: {what}")
        time.sleep(0.02)


def queued(service: Service) -> int:
    return sum(service.stats().snapshot.queued_by_class.values())


def report(name: str, times_ms: list[float]) -> None:
    points = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    spread = ", ".join(f"{label} {percentile(times_ms, p):.1f}" for label, p in points)
    print(f"{name}: {len(times_ms)} answered, ms: {spread}, max {max(times_ms):.1f}")


def explicit(service: Service, clients: list[Client]) -> list[float]:
    until(lambda: all(client.token is not None for client in clients), "every token known by a heartbeat")
    out = []
    for client in clients:
        began_s = time.perf_counter()
        service.accept(Inbound(stream=True, resume_token=client.token, resume_cancel=True), Client(0.0))
        client.ended.wait(30)
        assert client.ended_s is not None, "a cancel without an answer"
        out.append(1000.0 * (client.ended_s - began_s))
        time.sleep(0.005)
    return out


def leaving(clients: list[Client], rng: random.Random, over_s: float) -> list[float]:
    left_s: list[float] = []
    for client in clients:
        time.sleep(rng.expovariate(len(clients) / over_s))
        left_s.append(time.perf_counter())
        client.has_left = True
    for client in clients:
        client.ended.wait(120)
    return [1000.0 * ((client.ended_s or float("inf")) - at_s) for client, at_s in zip(clients, left_s, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--cancels", type=int, default=200, help="of each way")
    parser.add_argument("--ask-us", type=float, default=90.0, help="cost of asking whether one client is still there")
    args = parser.parse_args()
    rng, ask_s = random.Random(1), args.ask_us * 1e-6
    service = make_service()
    service.start()
    clients = [Client(ask_s) for _ in range(args.queued + LIMITS.max_batch_size)]
    for n, client in enumerate(clients):
        by_token = n >= len(clients) - args.cancels
        wishes = {"resumable": True, "heartbeat_ms": 500} if by_token else {}
        service.accept(Inbound(text=b"hello", stream=True, max_tokens=8, **wishes), client)  # type: ignore[arg-type]
    until(lambda: queued(service) == args.queued, f"{args.queued} queued")
    print(f"{queued(service)} queued, {LIMITS.max_batch_size} running; asking one client costs {args.ask_us:g} us")

    by_token = clients[-args.cancels :]
    times_ms = explicit(service, by_token)
    report("explicit cancel, from its arrival to the answer", times_ms)

    asked, asking_s, began_s = service.departures.asked, service.departures.asking_s, time.perf_counter()
    leavers = rng.sample(clients[LIMITS.max_batch_size : -args.cancels], args.cancels)
    left_ms = leaving(leavers, rng, over_s=5.0)
    wall_s = time.perf_counter() - began_s
    asked, asking_s = service.departures.asked - asked, service.departures.asking_s - asking_s
    report("client left, from leaving to the answer", left_ms)
    share, round_s = asking_s / wall_s, len(clients) / (asked / wall_s)
    print(f"asking: {asked / wall_s:.0f} questions/s, {share:.3f} of a core, every client each {round_s:.1f} s")
    cores = len(clients) * ask_s / (TARGET_MS / 1000.0)
    print(f"asking every client each {TARGET_MS:g} ms instead would take {cores:.1f} cores")
    service.stop(timeout_s=3.0)
    service.check_integrity()
    is_met = percentile(times_ms, 0.99) <= TARGET_MS
    print(f"explicit cancels within {TARGET_MS:g} ms (P99): {'yes' if is_met else 'NO'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
