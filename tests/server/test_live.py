"""The real tritonserver with a backend of a few lines: finding, environment, stub, shared memory, restart and drain."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seekserve.server import Event, Launch, LaunchOptions
from seekserve.server.cleanup import processes_of
from seekserve.server.find import wheel_root
from seekserve.server.heartbeat import read_heartbeats
from seekserve.server.httpget import call, model_states
from seekserve.server.shm import leftovers, prefix_of

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(wheel_root() is None, reason="nvidia-pytriton is not installed"),
]

MODEL = """\
import json, os, sys, threading, time
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.path = os.path.join(os.environ["SEEKSERVE_RUN_DIR"], f"heartbeat-tiny-{os.getpid()}.json")
        threading.Thread(target=self.beat, daemon=True).start()

    def beat(self):
        while True:
            body = {"model": "tiny", "pid": os.getpid(), "time_s": time.time(), "engine_loop_age_s": 0.0}
            with open(self.path + ".new", "w") as file:
                json.dump(body, file)
            os.replace(self.path + ".new", self.path)
            time.sleep(0.2)

    def execute(self, requests):
        words = numpy.array([sys.prefix, sys.executable, numpy.__version__], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", words)]) for _ in requests]
"""
CONFIG = """\
backend: "tiny"
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [3] }]
"""


@pytest.fixture
def options(tmp_path: Path) -> LaunchOptions:
    (tmp_path / "repo" / "tiny" / "1").mkdir(parents=True)
    (tmp_path / "repo" / "tiny" / "config.pbtxt").write_text(CONFIG)
    (tmp_path / "backends" / "tiny").mkdir(parents=True)
    (tmp_path / "backends" / "tiny" / "model.py").write_text(MODEL)
    return LaunchOptions(
        repository=tmp_path / "repo",
        backend_dir=tmp_path / "backends",
        log_file=tmp_path / "log",
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        ready_timeout_s=60.0,
        poll_s=0.2,
    )


@pytest.fixture
def launch(options: LaunchOptions, tmp_path: Path) -> Iterator[Launch]:
    with Launch(options, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}) as launch:
        launch.start()
        launch.wait_ready()
        yield launch
    assert processes_of(str(launch.prepared.run_dir)) == []
    assert leftovers(prefix_of(launch.id)) == []
    assert not launch.prepared.run_dir.exists()


def _infer(address: str) -> list[str]:
    import numpy
    from tritonclient.grpc import InferenceServerClient, InferInput

    with InferenceServerClient(address) as client:
        tensor = InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(numpy.zeros(1, dtype=numpy.int32))
        return [word.decode() for word in client.infer("tiny", [tensor]).as_numpy("OUT")]


def _stub(launch: Launch, *, not_pid: int = 0) -> int:
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        pids = [beat.pid for beat in read_heartbeats(launch.prepared.run_dir) if beat.pid != not_pid]
        if pids:
            return pids[0]
        time.sleep(0.05)
    raise AssertionError("no heartbeat")


def test_the_stub_runs_in_this_environment_and_the_drain_is_clean(launch: Launch) -> None:
    import numpy

    prefix, executable, numpy_version = _infer(launch.grpc_address)
    assert (prefix, numpy_version) == (sys.prefix, numpy.__version__)
    assert Path(executable).parent == Path(sys.executable).parent
    assert all(path.name.startswith(prefix_of(launch.id)) for path in leftovers(prefix_of(launch.id)))
    assert len(leftovers(prefix_of(launch.id))) == 1
    assert launch.trouble() is None
    assert launch.stop() == 0


def test_the_repository_api_is_closed_without_the_key_of_the_launch(launch: Launch) -> None:
    for path in ("v2/repository/index", "v2/repository/models/tiny/unload"):
        answer = call(f"{launch.http_url}/{path}", method="POST")
        assert answer is not None
        assert answer[0] == 403
    answer = call(f"{launch.http_url}/v2/systemsharedmemory/status")
    assert answer is not None
    assert answer[0] == 403
    key = {"seekserve-admin-key": launch.prepared.command.admin_key}
    assert model_states(launch.http_url, key) == {"tiny": ("READY", "")}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stuck_stub_is_noticed_in_time_and_serving_goes_on(launch: Launch, number: int) -> None:
    stub = _stub(launch)
    assert launch.trouble() is None
    os.kill(stub, number)
    killed_s = time.monotonic()
    while (trouble := launch.trouble()) is None:
        assert time.monotonic() - killed_s < 30.0, "never noticed"
        time.sleep(0.2)
    assert f"pid {stub}" in trouble
    launch.recover(trouble)
    assert launch.restarts == 1
    assert _stub(launch, not_pid=stub)
    assert _infer(launch.grpc_address)[0] == sys.prefix
    assert launch.stop() == 0


def test_a_killed_server_is_replaced_on_the_same_ports_and_its_stub_and_memory_go(launch: Launch) -> None:
    stub = _stub(launch)
    first = leftovers(prefix_of(launch.id))
    os.kill(os.getpgid(stub), signal.SIGKILL)
    while (trouble := launch.trouble()) is None:
        time.sleep(0.05)
    assert "killed by SIGKILL" in trouble
    launch.recover(trouble)
    assert not set(first) & set(leftovers(prefix_of(launch.id)))
    assert stub not in processes_of(str(launch.prepared.run_dir))
    assert _infer(launch.grpc_address)


def test_a_model_that_cannot_load_is_told_with_tritons_own_reason(options: LaunchOptions, tmp_path: Path) -> None:
    from seekserve.errors import StartFailed

    (options.backend_dir / "tiny" / "model.py").write_text("raise RuntimeError('broken on purpose')\n")
    events: list[Event] = []
    launch = Launch(options, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}, say=events.append)
    with pytest.raises(StartFailed, match="broken on purpose"):
        launch.run()
    assert leftovers(prefix_of(launch.id)) == []
    assert "ready" not in [event.kind for event in events]
