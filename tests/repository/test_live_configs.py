"""The real tritonserver loads the rendered configurations of the stock models; only what runs in them is a stand-in."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from toy_trtllm import toy_trtllm, write_stock_model, write_trtllm

from seekserve.repository.publish import RenderRequest, publish
from seekserve.server.backends import compose_backend_dir
from seekserve.server.command import build_env_changes
from seekserve.server.find import find_tritonserver
from seekserve.settings import Settings
from seekserve_backend.contract.stock_model import STOCK_INPUTS

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(importlib.util.find_spec("pytriton") is None, reason="needs the local extra"),
]
STAND_IN = """
class TritonPythonModel:  # reads gpu_device_ids
    def initialize(self, args):
        pass

    def execute(self, requests):
        return []
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def configs_of_server(repository: Path, backends: Path, models: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Starts a server on the models, asks it for their configurations, stops it."""
    server = find_tritonserver(None, os.environ)
    port = free_port()
    argv = [
        str(server.binary),
        f"--model-repository={repository}",
        f"--backend-directory={compose_backend_dir(backends, server, folder / 'composed')}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in models),
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--disable-auto-complete-config",
        "--pinned-memory-pool-byte-size=0",
        f"--backend-config=python,shm-region-prefix-name=seekserve-test-{os.getpid()}-",
        "--exit-timeout-secs=5",
    ]
    changes = build_env_changes(
        os.environ,
        run_dir=folder,
        probe_key="k",
        library_dirs=server.library_dirs,
        python_bin_dir=Path(sys.executable).parent,
    )
    log = folder / "server.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            argv, env={**os.environ, **changes}, stdout=output, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            return {name: _config(port, name, process, log) for name in models}
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(30)


def _config(port: int, name: str, process: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    deadline_s = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{name}/config", timeout=5) as answer:
                return dict(json.loads(answer.read()))
        except OSError:
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline_s, log.read_text(errors="replace")[-3000:]
            time.sleep(1)


def test_triton_loads_the_stock_engine_model_as_it_was_rendered(tmp_path: Path) -> None:
    bundle = write_trtllm(tmp_path / "bundle", toy_trtllm("trtllm-engine", tp=2))
    request = RenderRequest(bundle=bundle, out=tmp_path / "repo", topology="stock-engine", gpus=("0,1",))
    publish(request, Settings())
    (tmp_path / "backends" / "tensorrtllm").mkdir(parents=True)
    (tmp_path / "backends" / "tensorrtllm" / "model.py").write_text(STAND_IN, encoding="utf-8")
    [config] = configs_of_server(tmp_path / "repo", tmp_path / "backends", ["tensorrt_llm"], tmp_path).values()
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert config["max_batch_size"] == 128
    assert len(config["input"]) == len(STOCK_INPUTS)
    assert config["parameters"]["gpu_device_ids"]["string_value"] == "0,1"
    assert [(group["kind"], group["count"]) for group in config["instance_group"]] == [("KIND_CPU", 1)]


def test_triton_loads_the_llmapi_model_with_two_instances(tmp_path: Path) -> None:
    bundle = write_trtllm(tmp_path / "bundle", toy_trtllm(tp=1), args={})
    stock = write_stock_model(tmp_path / "image")
    (stock / "1" / "model.py").write_text(STAND_IN, encoding="utf-8")
    request = RenderRequest(
        bundle=bundle, out=tmp_path / "repo", topology="llmapi", gpus=("0", "1"), stock_model_dir=stock
    )
    publish(request, Settings())
    (tmp_path / "backends").mkdir()
    [config] = configs_of_server(tmp_path / "repo", tmp_path / "backends", ["chat"], tmp_path).values()
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert config["max_batch_size"] == 0
    assert config["instance_group"][0]["count"] == 2
