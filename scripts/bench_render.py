"""What rendering a whole repository costs beside the command's own start-up, pair by pair, for each topology.

    python scripts/bench_render.py [--pairs 15]

Rendering is the whole job in one process (read the bundle, render, parse back through Triton's schema, write the files
into a new folder), after a first round that loads the libraries; start-up is `seekserve --help`. The whole command,
libraries included, is printed beside them. Exit 1 when a rendering costs as much as the start-up.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchlib import paired, synthetic_bundle, workspace
from seekserve.repository.publish import RenderRequest, publish
from seekserve.settings import Settings
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, BundleFile, Parallel, TrtllmSpec

TARGET = 1.0
LLM_ARGS = """\
kv_cache_config: {free_gpu_memory_fraction: 0.85, enable_block_reuse: true}
enable_chunked_prefill: true
"""
CASES = (("integrated", "trtllm-pytorch"), ("stock-engine", "trtllm-engine"), ("llmapi", "trtllm-pytorch"))


def trtllm_bundle(folder: Path, engine: str) -> Path:
    """A whole bundle as `build-engine` leaves it, but for the weights."""
    synthetic_bundle(folder)
    model_dir = "engine" if engine == "trtllm-engine" else "weights"
    config = {"build_config": {"plugin_config": {"use_paged_context_fmha": True}}}
    texts = {"llm_args.yaml": LLM_ARGS, f"{model_dir}/config.json": json.dumps(config)}
    bundle = Bundle.load(folder)
    files = dict(bundle.files)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        files[name] = BundleFile(size_bytes=len(text), sha256=hashlib.sha256(text.encode()).hexdigest())
    spec = TrtllmSpec(version="1.2.1", model_dir=model_dir)
    complete = dataclasses.replace(bundle, engine=engine, trtllm=spec, parallel=Parallel(tp=8), files=files)
    (folder / BUNDLE_FILE).write_text(complete.to_json(), encoding="utf-8")
    return folder


def timed(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return (time.perf_counter() - started) * 1000


def command(*words: object) -> None:
    argv = [sys.executable, "-m", "seekserve", *map(str, words)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of rendering beside start-up.")
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    worst = 0.0
    with workspace() as folder:
        count = 0

        def fresh() -> Path:
            nonlocal count
            count += 1
            return folder / f"repository-{count}"

        for topology, engine in CASES:
            bundle = trtllm_bundle(folder / f"bundle-{topology}", engine)

            def render(bundle: Path = bundle, topology: str = topology) -> object:
                return publish(RenderRequest(bundle=bundle, out=fresh(), topology=topology), Settings())

            def whole(bundle: Path = bundle, topology: str = topology) -> None:
                command("render", bundle, "--out", fresh(), "--topology", topology)

            def start() -> float:
                return timed(lambda: command("--help"))

            ratio = paired(f"{topology}: rendering / start-up", lambda job=render: timed(job), start, pairs=pairs)
            print(ratio.line("ms"))
            print(
                paired(f"{topology}: whole command / start-up", lambda job=whole: timed(job), start, pairs=3).line("ms")
            )
            worst = max(worst, ratio.median)
    print(f"target: below {TARGET:g}; the worst of {len(CASES)} topologies is {worst:.2f}")
    return 0 if worst < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
