"""Two real tritonservers under the real mpirun: our backend in front on rank 0, a stock engine's stand-in on both."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mpi_world import add_engine, argv_of, rank_pids

from seekserve.server import Event, Launch, LaunchOptions
from seekserve.server.cleanup import processes_of
from seekserve.server.find import wheel_root
from seekserve.server.group import RANK_DEATH_S
from seekserve.server.shm import leftovers, prefix_of

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(wheel_root() is None, reason="nvidia-pytriton is not installed"),
]

# A Python-based backend under the stock backend's name, with one slow stream.
ENGINE = """\
import threading, time
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.stream, args=(request.get_response_sender(),), daemon=True).start()

    def stream(self, sender):
        for number in range(300):
            if sender.is_cancelled():
                break
            tensor = pb_utils.Tensor("OUT", numpy.array([number], dtype=numpy.int32))
            sender.send(pb_utils.InferenceResponse([tensor]))
            time.sleep(0.1)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TENSORS = """\
model_transaction_policy { decoupled: true }
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from scripts.benchlib import synthetic_bundle

    root = tmp_path_factory.mktemp("mpi")
    run = [sys.executable, "-m", "seekserve"]
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(
        [*run, "render", str(synthetic_bundle(root / "bundle")), "--out", str(root / "repo"), "--name", "front"],
        **quiet,
    )
    subprocess.run([*run, "install-backend", str(root / "backends")], **quiet)
    add_engine(root)
    with (root / "repo" / "tensorrt_llm" / "config.pbtxt").open("a") as config:
        config.write(TENSORS)
    (root / "backends" / "tensorrtllm").mkdir()
    (root / "backends" / "tensorrtllm" / "model.py").write_text(ENGINE)
    return root


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def launch(parts: Path, tmp_path: Path, events: list[Event]) -> Iterator[Launch]:
    options = LaunchOptions(
        repository=parts / "repo",
        backend_dir=parts / "backends",
        log_file=tmp_path / "log",
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        ready_timeout_s=90.0,
        poll_s=0.2,
    )
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with Launch(options, env=env, say=events.append) as launch:
        launch.start()
        launch.wait_ready()
        yield launch
    assert processes_of(str(launch.prepared.run_dir)) == []
    assert leftovers(prefix_of(launch.id)) == []
    assert not launch.prepared.run_dir.exists()


def _stream(address: str) -> tuple[Any, queue.Queue[tuple[Any, Any]]]:
    """A stock client's stream to the engine; results and errors arrive in the queue."""
    import numpy
    from tritonclient.grpc import InferenceServerClient, InferInput

    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = InferenceServerClient(address)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    tensor = InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(numpy.zeros(1, dtype=numpy.int32))
    client.async_stream_infer("tensorrt_llm", [tensor])
    return client, answers


def test_ready_by_generation_and_a_clean_stop(launch: Launch, events: list[Event]) -> None:
    assert "first generation ok" in events[-1].text
    pids = rank_pids(launch)
    assert {number: Path(argv_of(pid)[0]).name for number, pid in pids.items()} == {
        0: "tritonserver",
        1: "tritonserver",
    }
    assert "--allow-grpc=false" in argv_of(pids[1])
    assert launch.trouble() is None
    assert launch.stop() == 0


def test_a_killed_rank_breaks_the_stream_with_an_error_and_the_group_is_restarted(launch: Launch) -> None:
    client, answers = _stream(launch.grpc_address)
    try:
        for _ in range(3):
            result, error = answers.get(timeout=10)
            assert error is None
            assert result is not None
        before = rank_pids(launch)
        os.kill(before[1], signal.SIGKILL)
        killed_s = time.monotonic()
        while (trouble := launch.trouble()) is None:
            time.sleep(0.05)
        assert f"rank 1 (pid {before[1]}) is dead" in trouble
        launch.recover(trouble)
        while True:
            _, error = answers.get(timeout=RANK_DEATH_S)
            if error is not None:
                break
        assert "StatusCode.UNAVAILABLE" in str(error)
        assert time.monotonic() - killed_s < RANK_DEATH_S + launch.prepared.ready_timeout_s
    finally:
        client.stop_stream(cancel_requests=True)
        client.close()
    after = rank_pids(launch)
    assert set(after) == {0, 1}
    assert not set(after.values()) & set(before.values())
    client, answers = _stream(launch.grpc_address)
    assert answers.get(timeout=10)[1] is None
    client.stop_stream(cancel_requests=True)
    client.close()
