#!/usr/bin/env python
"""What the gateway costs: time to the first token at concurrency 1, and tokens/s at many streams.

    python scripts/bench_gateway.py [--pairs 5] [--streams 64] [--tokens 100]

All side by side in one run, in front of one tritonserver with the synthetic engine:

- `direct`: the typed asyncio gRPC client, without HTTP; `raw`: gRPC whose bytes nobody reads;
- `bare`: an ASGI application without a framework that does what has to be done and nothing else: body to tensors, text
  to the same events, no check, no key, no log; `fixed`: one that sends a request and events made beforehand, whatever
  was asked: the floor under any proxy in Python;
- `gateway`: `seekserve gateway` as it is started by default, with its request log.

First: the time to the first token, and what gateway and bare add to that of raw gRPC bytes (the aim: at most twice as
much). Then: tokens/s of the gateway over those of `direct` (the aim: at least 0.7), at the pace of an engine (25.9 ms a
step with 64 requests, DeepSeek-V3 on 8 x H200), and with one that costs nothing, where only Python on the same cores is
left. And how soon the server has heard of a client that left, answered or queued (the aim: 200 ms).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gatewaylib
from benchlib import Ratio, paired, seekserve, server, synthetic_bundle, workspace
from gatewaylib import Client, run_load, run_turns
from seekserve_backend.contract.step_model import StepModel

PACE = StepModel(
    base_points=((1, 14.0), (8, 18.0), (32, 22.0), (64, 25.9), (256, 50.1), (1000, 93.9)),
    kv_read_ms_per_token=0.0,
    attention_ms_per_token2=0.0,
    source="DeepSeek-V3 on 8 x H200, predicted",
)
FREE, PACED, SINGLE = "free", "paced", "single"
ONE_AT_A_TIME = {
    "kind": "static",
    "max_running": 1,
    "classes": {"interactive": {"priority": 0, "max_queue_requests": 1, "deadline_ms": 60_000}},
}
"""One request runs, one waits, the next is refused: so whoever leaves makes room that can be seen."""


@contextmanager
def started(*command: object, stream: str) -> Iterator[str]:
    """A server process and the address that it says it listens on."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: subprocess.PIPE}
    process = subprocess.Popen([sys.executable, *map(str, command)], text=True, **pipes)  # type: ignore[call-overload]
    try:
        for line in getattr(process, stream):
            if (found := re.search(r"(127\.0\.0\.1:\d+)\s*$", line)) and "backend" not in line:
                yield found[1]
                break
        else:
            raise RuntimeError(f"{command} did not start")
    finally:
        process.terminate()
        process.wait(30)


def overheads(direct: str, fixed: str, bare: str, gateway: str, *, rounds: int, requests: int) -> None:
    """Medians over the turns of each round; every way is asked in every turn."""
    figures = []
    for _ in range(rounds):
        rows = run_turns(direct, FREE, (fixed, bare, gateway), requests=requests)
        figures.append([statistics.median(column) for column in zip(*rows, strict=True)])
    medians = [statistics.median(column) for column in zip(*figures, strict=True)]
    names = ("raw gRPC", "typed client", "fixed proxy", "bare proxy", "gateway")
    shown = ", ".join(f"{name} {value:.2f} ms" for name, value in zip(names, medians, strict=True))
    print(f"first token at concurrency 1 (p50, {rounds} rounds of {requests} turns): {shown}")
    for name, ratios in (
        ("time to first token, gateway / bare proxy", sorted(g / b for _, _, _, b, g in figures)),
        ("what is added to raw gRPC, gateway / bare proxy", sorted((g - r) / (b - r) for r, _, _, b, g in figures)),
        ("what is added to raw gRPC, gateway / fixed proxy", sorted((g - r) / (f - r) for r, _, f, _, g in figures)),
    ):
        print(f"{name}: ratio {statistics.median(ratios):.2f} (min {ratios[0]:.2f}, max {ratios[-1]:.2f})", flush=True)


def leaving(gateway: str, *, rounds: int) -> None:
    """From the moment a client closes its connection to the moment the server gives its place to another."""
    running_ms, queued_ms = [], []
    for _ in range(rounds):
        first = Client(gateway, SINGLE)
        first.read_event()
        second = Client(gateway, SINGLE)
        time.sleep(0.1)  # it has arrived in the queue by then
        status = Client(gateway, SINGLE).status()
        assert status == 429, status
        left_s = time.perf_counter()
        first.leave()
        second.read_event()
        running_ms.append((time.perf_counter() - left_s) * 1000)
        third = Client(gateway, SINGLE)
        time.sleep(0.1)
        left_s = time.perf_counter()
        third.leave()
        while (another := Client(gateway, SINGLE)).is_refused():
            another.leave()
        queued_ms.append((time.perf_counter() - left_s) * 1000)
        for client in (second, another):
            client.leave()
        time.sleep(0.4)
    for name, values in (("while it is answered", running_ms), ("while it is queued", queued_ms)):
        print(
            f"a client that leaves {name} has made room after {statistics.median(values):.0f} ms "
            f"(min {min(values):.0f}, max {max(values):.0f}, {rounds} rounds; the aim: 200)",
            flush=True,
        )


def rates(name: str, direct: str, gateway: str, model: str, args: argparse.Namespace, requests: int) -> Ratio:
    def rate(kind: str, url: str) -> Callable[[], float]:
        return lambda: run_load(kind, url, model, streams=args.streams, requests=requests, tokens=args.tokens)

    return paired(name, rate("http", gateway), rate("direct", direct), pairs=args.pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=100, help="of each answer")
    parser.add_argument("--requests", type=int, default=300, help="turns in each round of first tokens")
    parser.add_argument("--first-token-only", action="store_true")
    args = parser.parse_args()
    with workspace() as folder:
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        repository, backends = folder / "repository", folder / "backends"
        seekserve("render", synthetic_bundle(folder / "free", name=FREE), "--out", repository)
        seekserve("render", synthetic_bundle(folder / "paced", name=PACED, step_model=PACE), "--out", repository)
        (folder / "one.json").write_text(json.dumps(ONE_AT_A_TIME))
        single = synthetic_bundle(folder / "single", name=SINGLE, step_model=PACE)
        seekserve("render", single, "--out", repository, "--policy", folder / "one.json")
        seekserve("install-backend", backends)
        with server(repository, backends, folder) as launch:
            direct = launch.grpc_address
            bare_command, fixed_command = ((gatewaylib.__file__, kind, direct, FREE, 2) for kind in ("bare", "fixed"))
            gateway_command = ("-m", "seekserve", "gateway", "--port", 0, "--backend", direct)
            with started(*gateway_command, stream="stderr") as gateway:
                leaving(gateway, rounds=2 * args.pairs)
                with started(*fixed_command, stream="stdout") as fixed, started(*bare_command, stream="stdout") as bare:
                    overheads(direct, fixed, bare, gateway, rounds=args.pairs, requests=args.requests)
                if args.first_token_only:
                    return
                for model, pace, requests in ((PACED, "at an engine's pace", 2), (FREE, "engine costs nothing", 4)):
                    name = f"tokens/s at {args.streams} streams, {pace}, gateway / direct"
                    ratio = rates(name, direct, gateway, model, args, requests * args.streams)
                    print(ratio.line("tokens/s"), flush=True)


if __name__ == "__main__":
    main()
