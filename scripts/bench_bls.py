#!/usr/bin/env python
"""What the hop to a stock `tensorrt_llm` model costs: streamed responses/s through it and with an engine in process.

    python scripts/bench_bls.py [--pairs 3] [--streams 8] [--tokens 50] [--carrier grpc|bls]

Side by side in one tritonserver: our model in front of a Python stand-in for the stock model that answers a token per
response without delay, and our model with the synthetic engine at no step time. Both send one response for each token,
unless two tokens of a request come so close that they share one: tokens are what is counted. The stand-in is a Python
model itself, which costs more than the C++ one would. Over BLS only one stream is safe (see triton/bls.py).
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.doubles.stock_tensorrt_llm.install import StockDouble

from benchlib import drive, encode_request, paired, seekserve, synthetic_bundle, workspace
from seekserve.server import Launch, LaunchOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--requests", type=int, default=80, help="in each timed round")
    parser.add_argument("--carrier", choices=("grpc", "bls"), default="grpc")
    args = parser.parse_args()
    if args.carrier == "bls" and args.streams > 1:
        parser.error(f"--streams {args.streams} over BLS can lock up the stub; use --streams 1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with workspace() as folder:
        repository, backends = folder / "repository", folder / "backends"
        seekserve("render", synthetic_bundle(folder / "in_process", name="in_process"), "--out", repository)
        seekserve("render", synthetic_bundle(folder / "front", name="front"), "--out", repository)
        seekserve("install-backend", backends)
        parameters = {"stock_model": "tensorrt_llm"}
        if args.carrier == "grpc":
            parameters["stock_grpc_address"] = f"127.0.0.1:{port}"
        with (repository / "front" / "config.pbtxt").open("a") as config:
            for key, value in parameters.items():
                config.write(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n')
        StockDouble(repository).control(token_s=0.0, script=[40])
        options = LaunchOptions(
            repository=repository,
            backend_dir=backends,
            http_port=0,
            grpc_port=port,
            metrics_port=0,
            pid_file=folder / "launch.json",
            log_file=folder / "server.log",
        )
        with Launch(options, env=os.environ) as launch:
            launch.start()
            launch.wait_ready()

            def rate(model: str) -> Callable[[], float]:
                request = encode_request(model, "hi", args.tokens)

                def tokens_per_s() -> float:
                    tally = drive(launch.grpc_address, request, streams=args.streams, requests=args.requests)
                    return tally.requests * args.tokens / tally.wall_s

                return tokens_per_s

            ratio = paired(
                f"tokens/s at {args.streams} streams, stock model over {args.carrier} / in process",
                rate("front"),
                rate("in_process"),
                pairs=args.pairs,
            )
            print(ratio.line("tokens/s"), flush=True)


if __name__ == "__main__":
    main()
