#!/usr/bin/env python
"""What the backend costs by itself: streamed responses/s and first-response latency with an engine that does nothing.

    python scripts/bench_backend.py [--pairs 5] [--streams 16] [--tokens 50]

Side by side in one tritonserver: our backend with the synthetic engine at no step time, and bare decoupled Python
models that answer the same number of responses with the same tensors, one from `execute` itself and one from a pool of
threads. No coalescing: one response for each token, counted by the client.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchlib import Tally, drive, encode_request, paired, percentile, seekserve, server, synthetic_bundle, workspace

BARE_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 8
model_transaction_policy {{ decoupled: true }}
input {{ name: "text_input" data_type: TYPE_STRING dims: 1 }}
input {{ name: "max_tokens" data_type: TYPE_INT32 dims: 1 }}
input {{ name: "stream" data_type: TYPE_BOOL dims: 1 }}
output {{ name: "text_output" data_type: TYPE_STRING dims: -1 }}
output {{ name: "completion_tokens" data_type: TYPE_INT32 dims: 1 }}
instance_group {{ count: 1 kind: KIND_CPU }}
"""

# Sets up what our installed backend sets up too, and answers without any bookkeeping.
BARE_MODEL = """
import site, sys
sys.path.insert(0, {site!r})
site.addsitedir({site!r})
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.pool = ThreadPoolExecutor({threads}) if {threads} else None

    def execute(self, requests):
        for request in requests:
            tensors = {{t.name(): t.as_numpy() for t in request.inputs()}}
            count = int(tensors["max_tokens"][0, 0])
            sender = request.get_response_sender()
            if self.pool is None:
                self.answer(sender, count)
            else:
                self.pool.submit(self.answer, sender, count)

    def answer(self, sender, count):
        for n in range(1, count + 1):
            tensors = [pb_utils.Tensor("text_output", np.array([[b"F"]], dtype=np.object_))]
            if n == count:
                tensors.append(pb_utils.Tensor("completion_tokens", np.array([[n]], dtype=np.int32)))
            sender.send(
                pb_utils.InferenceResponse(tensors),
                flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if n == count else 0,
            )
"""


def bare_model(repository: Path, name: str, *, threads: int) -> None:
    import sysconfig

    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(BARE_CONFIG.format(name=name))
    (folder / "model.py").write_text(BARE_MODEL.format(site=sysconfig.get_path("purelib"), threads=threads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=50, help="responses for each request")
    parser.add_argument("--requests", type=int, default=320, help="in each timed round")
    args = parser.parse_args()
    with workspace() as folder:
        repository, backends = folder / "repository", folder / "backends"
        seekserve("render", synthetic_bundle(folder / "bundle"), "--out", repository)
        seekserve("install-backend", backends)
        bare_model(repository, "bare_sync", threads=0)
        bare_model(repository, "bare_pool", threads=16)
        with server(repository, backends, folder) as launch:

            def round_of(model: str, tokens: int, streams: int, requests: int) -> Tally:
                tally = drive(
                    launch.grpc_address, encode_request(model, "hi", tokens), streams=streams, requests=requests
                )
                assert tally.responses == tally.requests * tokens, (model, tally.responses, tally.requests, tokens)
                return tally

            def rate(model: str) -> Callable[[], float]:
                return lambda: round_of(model, args.tokens, args.streams, args.requests).responses_per_s

            def first_ms(model: str) -> Callable[[], float]:
                return lambda: 1000 * percentile(round_of(model, 1, 1, 200).first_response_s, 0.5)

            for bare in ("bare_sync", "bare_pool"):
                ratio = paired(
                    f"streamed responses/s at {args.streams} streams, seekserve / {bare}",
                    rate("synthetic"),
                    rate(bare),
                    pairs=args.pairs,
                )
                print(ratio.line("responses/s"), flush=True)
            ratio = paired(
                "first response at concurrency 1 (p50), seekserve / bare_sync",
                first_ms("synthetic"),
                first_ms("bare_sync"),
                pairs=args.pairs,
            )
            print(ratio.line("ms"))


if __name__ == "__main__":
    main()
