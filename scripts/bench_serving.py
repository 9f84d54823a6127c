#!/usr/bin/env python
"""What serving costs: the same engine through gRPC and tritonserver against driven in process, same prompts, same
tokens.

    python scripts/bench_serving.py [--pairs 5] [--streams 16] [--tokens 64]

Both sides run the reference engine on the tiny checkpoint with `--streams` requests at once, greedy, a fixed number of
tokens each (min_tokens = max_tokens), A B A B in one run; tokens/s are counted by the client. Two clients are shown: a
raw one that parses nothing, and the project's own typed client, whose share is the difference between the two.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import TINY, drive, encode_request, paired, seekserve, server, workspace
from seekserve.client import Client, GenerateRequest
from seekserve_backend.answers import Inbound
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.engines.port import EngineRequest, Sampling
from seekserve_backend.engines.reference.engine import ReferenceEngine
from seekserve_backend.prompts import PromptEncoder

PROMPT = "<｜User｜>Count from 3 to 19.<｜Assistant｜>"


def in_process(bundle_dir: Path, *, streams: int, tokens: int) -> Callable[[], float]:
    engine = ReferenceEngine(bundle_dir, Bundle.load(bundle_dir))
    ids = PromptEncoder(bundle_dir / "tokenizer").encode(Inbound(text=PROMPT.encode()))

    def run() -> float:
        for n in range(streams):
            sampling = Sampling(min_tokens=tokens)
            engine.add(EngineRequest(id=f"b{n}", prompt_ids=ids, max_tokens=tokens, sampling=sampling))
        started, produced, ended = time.perf_counter(), 0, 0
        while ended < streams:
            report = engine.step(0.1)
            produced += sum(len(event.token_ids) for event in report.tokens)
            ended += len(report.ends)
        assert produced == streams * tokens, (produced, streams, tokens)
        return produced / (time.perf_counter() - started)

    return run


def typed_client(address: str, model: str, *, streams: int, tokens: int) -> Callable[[], float]:
    def run() -> float:
        produced = [0] * streams
        barrier = threading.Barrier(streams + 1)

        def one(n: int) -> None:
            with Client(address, model) as client:
                client.is_ready()
                barrier.wait()
                request = GenerateRequest(prompt=PROMPT, max_tokens=tokens, min_tokens=tokens)
                produced[n] = client.generate(request).completion_tokens or 0

        threads = [threading.Thread(target=one, args=(n,)) for n in range(streams)]
        for thread in threads:
            thread.start()
        barrier.wait()
        started = time.perf_counter()
        for thread in threads:
            thread.join()
        assert sum(produced) == streams * tokens, produced
        return sum(produced) / (time.perf_counter() - started)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    size = {"streams": args.streams, "tokens": args.tokens}
    with workspace() as folder:
        bundle_dir, repository, backends = folder / "bundle", folder / "repository", folder / "backends"
        seekserve("build-engine", TINY, "--engine", "reference", "--out", bundle_dir)
        seekserve("render", bundle_dir, "--out", repository, "--name", "tiny")
        seekserve("install-backend", backends)
        direct = in_process(bundle_dir, **size)
        with server(repository, backends, folder) as launch:
            raw_request = encode_request("tiny", PROMPT, args.tokens, min_tokens=args.tokens)

            def raw() -> float:
                tally = drive(launch.grpc_address, raw_request, streams=args.streams, requests=args.streams)
                return args.streams * args.tokens / tally.wall_s

            typed = typed_client(launch.grpc_address, "tiny", **size)
            print(
                paired(
                    f"tokens/s at {args.streams} streams, served (raw client) / in process",
                    raw,
                    direct,
                    pairs=args.pairs,
                ).line("tokens/s"),
                flush=True,
            )
            print(
                paired(
                    f"tokens/s at {args.streams} streams, served (typed client) / in process",
                    typed,
                    direct,
                    pairs=args.pairs,
                ).line("tokens/s"),
                flush=True,
            )
            print(paired("share left by the typed client, typed / raw", typed, raw, pairs=args.pairs).line("tokens/s"))


if __name__ == "__main__":
    main()
