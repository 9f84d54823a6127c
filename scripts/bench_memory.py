#!/usr/bin/env python
"""Whether anything leaks: KV blocks and resident memory of the backend's process over many requests.

    python scripts/bench_memory.py [--requests 10000] [--engine reference|synthetic]

Sends short requests in ten equal batches, 16 streams at once, every tenth one abandoned by its client half way. After
each batch it prints the KV blocks in use and the resident memory of the Python stub, then the growth per 1,000 requests
over the second half (least squares) with the scatter around that line. Exit status 1 when KV blocks do not return to
zero.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import TINY, encode_request, seekserve, server, synthetic_bundle, workspace

_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def batch(address: str, requests: int, *, streams: int = 16) -> None:
    import grpc

    request = encode_request("model", "<｜User｜>What is 12 + 34?<｜Assistant｜>", 12)

    def run() -> None:
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = channel.stream_stream(_STREAM)
            for n in range(requests // streams):
                responses = call(iter((request,)), timeout=120)
                for got, _ in enumerate(responses):
                    if n % 10 == 9 and got == 3:
                        responses.cancel()
                        break

    threads = [threading.Thread(target=run) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def metric(url: str, name: str) -> float:
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))


def settled_blocks(url: str) -> int:
    """KV blocks once nothing runs; the backend publishes its numbers once a second."""
    deadline = time.monotonic() + 30
    while metric(url, "seekserve_running_requests") and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(1.5)
    return int(metric(url, "seekserve_kv_used_blocks"))


def main() -> int:
    import psutil

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--engine", choices=("reference", "synthetic"), default="reference")
    args = parser.parse_args()
    with workspace() as folder:
        bundle = folder / "bundle"
        if args.engine == "reference":
            seekserve("build-engine", TINY, "--engine", "reference", "--out", bundle)
        else:
            synthetic_bundle(bundle)
        seekserve("render", bundle, "--out", folder / "repository", "--name", "model")
        seekserve("install-backend", folder / "backends")
        with server(folder / "repository", folder / "backends", folder) as launch:
            run_dir = Path(json.loads((folder / "launch.json").read_text())["run_dir"])
            time.sleep(1.5)
            stub = psutil.Process(json.loads(next(run_dir.glob("heartbeat-*.json")).read_text())["pid"])
            blocks, resident_mib = [], []
            for n in range(10):
                batch(launch.grpc_address, args.requests // 10)
                blocks.append(settled_blocks(launch.metrics_url))
                resident_mib.append(stub.memory_info().rss / 2**20)
                done = (n + 1) * (args.requests // 10)
                print(f"after {done:6d} requests: {blocks[-1]} KV blocks used, {resident_mib[-1]:.1f} MiB", flush=True)
    half = resident_mib[5:]
    per_batch, at_0 = statistics.linear_regression(range(len(half)), half)
    scatter = max(abs(y - at_0 - per_batch * x) for x, y in enumerate(half))
    per_1000 = per_batch * 1000 / (args.requests // 10)
    print(f"second half: {per_1000:+.2f} MiB per 1,000 requests, scatter {scatter:.2f} MiB")
    return int(any(blocks))


if __name__ == "__main__":
    sys.exit(main())
