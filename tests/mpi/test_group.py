"""Two ranks under the real mpirun with the fake tritonserver: they live and die together, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from launch_world import Scene
from mpi_world import MpiWorld, argv_of, environment_of, rank_pids

from seekserve.errors import ServerError, StartFailed
from seekserve.server import Launch
from seekserve.server.cleanup import processes_of
from seekserve.server.group import RANK_DEATH_S
from seekserve.server.heartbeat import is_running
from seekserve.server.process import living_members
from seekserve.server.record import LaunchRecord
from seekserve.server.shm import leftovers, prefix_of


def _trouble(launch: Launch) -> str:
    deadline_s = time.monotonic() + 20
    while (trouble := launch.trouble()) is None:
        assert time.monotonic() < deadline_s, "never noticed"
        time.sleep(0.02)
    return trouble


def _until(holds: Any) -> None:
    deadline_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_rank_0_alone_listens_and_the_other_loads_only_what_has_ranks(world: MpiWorld) -> None:
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        pids = rank_pids(launch)
        assert set(pids) == {0, 1}
        ports = {n: {c.laddr.port for c in psutil.Process(pid).net_connections()} for n, pid in pids.items()}
        assert {launch.prepared.ports.http, launch.prepared.ports.metrics} <= ports[0]
        assert ports[1] == set()
        loads = [word for word in argv_of(pids[1]) if word.startswith("--load-model")]
        assert loads == ["--load-model=tensorrt_llm"]
        wanted = {f"{prefix_of(launch.id)}r0_", f"{prefix_of(launch.id)}r1_"}
        deadline = time.monotonic() + 20
        while (prefixes := {path.name.removesuffix("region") for path in leftovers(prefix_of(launch.id))}) != wanted:
            # Ready is what rank 0 says; the other may still be on its way.
            assert time.monotonic() < deadline, prefixes
            time.sleep(0.1)
        assert len(os.sched_getaffinity(pids[1])) == len(os.sched_getaffinity(0)), (
            "mpirun must not pin a rank to a core"
        )
        record = LaunchRecord.read(launch.record_path)
        assert (record.world_size, record.plan.partition(",")[0]) == (2, "leader by mpirun")
        assert launch.trouble() is None
        assert launch.stop() == 0
    assert scene.kinds == ["starting", "loading", "ready", "stopped"]
    assert scene.left_behind() == []
    assert not launch.log_file.exists()


def test_a_killed_rank_ends_the_group_in_time_and_it_is_restarted(world: MpiWorld) -> None:
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        before = rank_pids(launch)
        os.kill(before[1], signal.SIGKILL)
        noticed_s = time.monotonic()
        trouble = _trouble(launch)
        assert f"rank 1 (pid {before[1]}) is dead" in trouble
        assert "rank 1 was killed by SIGKILL on node" in trouble
        assert "ended with exit status 137" in trouble
        launch.recover(trouble)
        assert time.monotonic() - noticed_s < RANK_DEATH_S + launch.prepared.ready_timeout_s
        after = rank_pids(launch)
        assert set(after) == {0, 1}
        assert not set(after.values()) & set(before.values())
        assert not any(is_running(pid) for pid in before.values())
        assert launch.stop() == 0
    restarting = next(event.text for event in scene.events if event.kind == "restarting")
    assert restarting.startswith("restarting all ranks (restart 1), to be ready again within 20 s")
    assert scene.left_behind() == []


def test_the_status_of_the_rank_that_failed_first_is_named(world: MpiWorld) -> None:
    world.plan(ranks={"0": {"load_s": 5.0}, "1": {"exit_at_start": 7}})
    scene = Scene(world)
    with pytest.raises(StartFailed, match=r"(?s)rank 1 ended with exit status 7.*fake server cannot start"):
        scene.launch.run()
    assert scene.left_behind() == []


def test_a_rank_that_ends_with_0_is_trouble_too_though_mpirun_goes_on(world: MpiWorld) -> None:
    scene = Scene(world, max_restarts=0)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        _until(lambda: leftovers(f"{prefix_of(launch.id)}r1_"))
        os.kill(rank_pids(launch)[1], signal.SIGTERM)
        trouble = _trouble(launch)
        assert "rank 1 (pid " in trouble
        with pytest.raises(ServerError, match=r"gave up: .*rank 1"):
            launch.recover(trouble)
    assert scene.left_behind() == []


def test_ranks_that_never_become_ready_are_told_one_by_one_with_the_shared_memory(world: MpiWorld) -> None:
    world.plan(load_s=30.0)
    scene = Scene(world, ready_timeout_s=2.0)
    with pytest.raises(StartFailed) as caught:
        scene.launch.run()
    text = str(caught.value)
    assert "rank 0: fake server says hello\n  rank 1: fake server says hello" in text
    assert "/dev/shm: " in text
    assert "GPU peer access: " in text
    assert scene.left_behind() == []


def test_the_serving_rank_drains_before_the_others_are_asked(world: MpiWorld) -> None:
    world.plan(ranks={"0": {"drain_s": 2.0}})
    scene = Scene(world, log_file=world.root / "log", exit_timeout_s=10)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.stop() == 0
    goodbyes = [line for line in (world.root / "log").read_text().splitlines() if "goodbye" in line]
    assert [line[:5] for line in goodbyes] == ["[1,0]", "[1,1]"]
    assert scene.left_behind() == []


def test_the_serving_ranks_own_failure_to_stop_well_is_named(world: MpiWorld) -> None:
    world.plan(ranks={"0": {"exit_status": 3}})
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.stop() == 4
    assert "exit status 3" in scene.events[-1].text
    assert scene.left_behind() == []


def test_the_environment_of_the_launch_reaches_every_rank_and_keys_stay_off_the_launchers_arguments(
    world: MpiWorld,
) -> None:
    scene = Scene(world, mpi_interface="lo")
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        for pid in rank_pids(launch).values():
            env = environment_of(pid)
            assert env["SEEKSERVE_RUN_DIR"] == str(launch.prepared.run_dir)
            assert env["OMPI_MCA_btl_tcp_if_include"] == "lo"
            assert env["PATH"] == {**world.env, **launch.prepared.plan.env}["PATH"]
        assert launch.stop() == 0


def test_two_nodes_get_their_ranks_their_environment_and_their_end(world: MpiWorld) -> None:
    """The second node is a session of its own on this machine, reached by a stand-in for ssh."""
    (world.root / "shared").mkdir()
    scene = Scene(world, hosts=f"{os.uname().nodename}:1,othernode:1", shared_dir=world.root / "shared")
    scene.launch = Launch(scene.launch._options, say=scene.hear, env=world.with_agent())
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        _until(lambda: len(rank_pids(launch)) == 2)
        pids = rank_pids(launch)
        env = environment_of(pids[1])
        assert (env["FAKE_NODE"], env["OMPI_COMM_WORLD_SIZE"]) == ("othernode", "2")
        assert env["SEEKSERVE_RUN_DIR"].startswith(str(world.root / "shared"))
        assert os.getsid(pids[1]) != os.getsid(pids[0])
        assert launch.trouble() is None
        left = Path(f"/dev/shm/{prefix_of(launch.id)}r1_of_another_node")
        left.touch()
        subprocess.run(launch.prepared.plan.clean_argv, env=world.with_agent(), check=True, timeout=30)
        assert not left.exists()
        os.kill(pids[1], signal.SIGKILL)
        trouble = _trouble(launch)
        assert "rank 1" in trouble
        launch.recover(trouble)
        assert launch.stop() == 0
        run_dir = launch.prepared.run_dir
    assert processes_of(str(run_dir)) == []
    assert not run_dir.exists()
    assert leftovers(prefix_of(launch.id)) == []


def _run(world: MpiWorld, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seekserve", *argv]
    return subprocess.run(command, env=world.env, cwd=world.root, capture_output=True, text=True, timeout=60)


def test_detach_status_and_stop_know_a_group(world: MpiWorld) -> None:
    argv = world.argv("--detach", "--world-size", "2")
    done = subprocess.run(argv, env=world.env, cwd=world.root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    status = _run(world, "status", "--json")
    body = json.loads(status.stdout)
    assert (status.returncode, body["is_ready"]) == (0, True)
    assert body["plan"].startswith("leader by mpirun, tp 2 x pp 1 = 2")
    assert "  plan     leader by mpirun" in _run(world, "status").stdout
    stopped = _run(world, "stop")
    assert (stopped.returncode, stopped.stdout) == (0, f"launch {body['id']} stopped cleanly\n")
    assert world.left_behind(body["id"]) == []


def test_a_launch_that_is_killed_outright_leaves_no_rank(world: MpiWorld) -> None:
    process = subprocess.Popen(
        world.argv("--json"), env=world.env, cwd=world.root, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    events = (json.loads(line) for line in process.stdout)
    ready = next(event for event in events if event["event"] == "ready")
    launcher = LaunchRecord.read(Path(ready["record"])).server_pid
    assert launcher is not None
    process.kill()
    process.wait()
    process.stdout.close()
    _until(lambda: world.left_behind(ready["id"]) == [])
    assert living_members(launcher) == []
    _run(world, "stop")
