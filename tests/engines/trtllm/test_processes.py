"""Workers: the Python they get, whether one is gone, and that only those the engine started are ended."""

from __future__ import annotations

import multiprocessing.spawn
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.engines.trtllm.bundles import Run, request, wait_until
from tests.engines.trtllm.conftest import World

from seekserve_backend.contract.bundle import Parallel
from seekserve_backend.engines.port import EngineError
from seekserve_backend.engines.trtllm.devices import check_leads, mpi_rank, select_gpus
from seekserve_backend.engines.trtllm.processes import Workers, use_right_python

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
# Carries the mark of an mpi4py worker among its arguments.
RANK = [*SLEEP, "-m", "mpi4py.futures.server"]
STUBBORN = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print(1); time.sleep(60)"]


@contextmanager
def child(argv: list[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(argv, **more) as process:
        try:
            yield process
        finally:
            process.kill()


def test_what_was_there_before_is_left_alone() -> None:
    with child(SLEEP) as before:
        workers = Workers()
        with child(SLEEP) as worker:
            assert workers.kill_left(grace_s=5) == 1
            assert not Path(f"/proc/{worker.pid}").exists()
        assert before.poll() is None
        assert workers.kill_left(grace_s=0) == 0


def test_a_worker_that_ignores_the_polite_signal_is_killed() -> None:
    workers = Workers()
    with child(STUBBORN, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        assert workers.kill_left(grace_s=0.2) == 1
        assert not Path(f"/proc/{worker.pid}").exists()


def test_a_worker_of_a_worker_is_one_too() -> None:
    workers = Workers()
    nested = f"import subprocess, time; p = subprocess.Popen({SLEEP!r}); print(p.pid, flush=True); time.sleep(60)"
    with child([sys.executable, "-c", nested], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        grandchild = int(worker.stdout.readline())
        assert workers.kill_left(grace_s=5) == 2
        wait_until(lambda: not Path(f"/proc/{grandchild}").exists())


def test_only_ranks_have_to_live() -> None:
    workers = Workers()
    with child(RANK) as rank, child(SLEEP) as helper:
        wait_until(lambda: b"mpi4py" in Path(f"/proc/{rank.pid}/cmdline").read_bytes())
        workers.note_ranks()
        helper.kill()
        helper.wait()
        assert workers.dead_rank() is None
        rank.kill()
        wait_until(lambda: workers.dead_rank() == rank.pid)


def test_a_rank_that_is_gone_ends_the_engine_long_before_its_silence_would(old_world: World) -> None:
    """Whoever started it: what counts is that it came up with the engine."""
    engine = old_world.start({"hold_queue": True})
    with child(RANK) as rank:
        wait_until(lambda: b"mpi4py" in Path(f"/proc/{rank.pid}/cmdline").read_bytes())
        engine._workers.note_ranks()
        run = Run(engine).add(request())
        rank.kill()
        started = time.monotonic()
        with pytest.raises(EngineError, match=f"worker {rank.pid} is gone"):
            run.until_ended("a")
        assert time.monotonic() - started < 10


def test_workers_run_the_python_of_this_process() -> None:
    before, of_spawn, path = sys.executable, multiprocessing.spawn.get_executable(), os.environ["PATH"]
    try:
        sys.executable = "/usr/bin/false"
        python = use_right_python()
        assert sys.executable == python
        assert os.fsdecode(multiprocessing.spawn.get_executable()) == python
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout
        assert version.split()[1].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
        assert Path(python).parent == Path(sys.prefix) / "bin", "beside the packages that are loaded"
    finally:
        sys.executable = before
        multiprocessing.set_executable(of_spawn)
        os.environ["PATH"] = path


TP2 = Parallel(tp=2, gpus_per_node=8)


@pytest.mark.parametrize(
    ("ids", "instance", "group"),
    [
        ("0,1;2,3", "m_0_0", "0,1"),
        ("0,1;2,3", "m_0_1", "2,3"),
        (" 4, 5 ", "m_0_0", "4,5"),
        ("6,7", "my-model_0", "6,7"),
    ],
)
def test_each_instance_sees_its_own_gpus(ids: str, instance: str, group: str) -> None:
    environment: dict[str, str] = {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}
    assert select_gpus(ids, instance, TP2, environment) == group
    assert environment == {"CUDA_VISIBLE_DEVICES": group}


@pytest.mark.parametrize(
    ("ids", "instance", "words"),
    [
        ("0,1", "m_0_1", "number 2 and gpu_device_ids '0,1' has 1 groups"),
        ("0", "m_0_0", "1 GPUs .* the bundle needs 2"),
        ("0,1;1,2", "m_0_0", "names a GPU twice"),
        ("a,b", "m_0_0", "write device numbers"),
        ("", "m_0_0", "write device numbers"),
    ],
)
def test_gpus_that_do_not_fit_are_refused(ids: str, instance: str, words: str) -> None:
    environment: dict[str, str] = {}
    with pytest.raises(EngineError, match=words):
        select_gpus(ids, instance, TP2, environment)
    assert environment == {}


def test_gpus_that_somebody_else_was_given_are_refused() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    with pytest.raises(EngineError, match="the GPU 0, and CUDA_VISIBLE_DEVICES allows 4,5,6,7"):
        select_gpus("0,1;4,5", "m_0_0", TP2, environment)
    assert select_gpus("0,1;4,5", "m_0_1", TP2, environment) == "4,5"
    by_name = {"CUDA_VISIBLE_DEVICES": "GPU-1f,GPU-2e"}
    assert select_gpus("0,1", "m_0_0", TP2, by_name) == "0,1"


def test_several_nodes_need_a_nodes_gpus_only() -> None:
    assert select_gpus("0,1", "m_0_0", Parallel(tp=4, gpus_per_node=2), {}) == "0,1"


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, 3),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, 0),
        ({"TLLM_SPAWN_PROXY_PROCESS": "1", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, 0),
    ],
)
def test_the_rank_of_a_process_in_its_job(environment: dict[str, str], rank: int) -> None:
    assert mpi_rank(environment) == rank


def test_an_engine_lives_on_rank_0_alone() -> None:
    check_leads({})
    with pytest.raises(EngineError, match="rank 1 of an MPI job"):
        check_leads({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
