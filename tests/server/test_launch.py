"""Launches of the fake server, in this process: start, watch, restart, give up, drain, and what is left afterwards."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from pathlib import Path

import pytest
from launch_world import Scene, World

from seekserve.errors import ConflictError, InputError, ServerError, StartFailed, TargetExists
from seekserve.server import Launch, LaunchOptions
from seekserve.server.httpget import call
from seekserve.server.record import LaunchRecord
from seekserve.server.shm import leftovers, prefix_of


def _later(number: int, delay_s: float = 0.2) -> None:
    """A signal to this process while it supervises."""
    timer = threading.Timer(delay_s, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def _until_beating(scene: Scene, *, not_pid: int = 0) -> int:
    while True:
        pids = [beat.pid for beat in scene.beats() if beat.pid != not_pid]
        if pids:
            return int(pids[0])
        assert scene.launch.trouble() is None


def test_start_ready_and_a_clean_stop_leave_nothing(world: World) -> None:
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        assert launch.wait_ready() > 0
        assert call(f"{launch.http_url}/v2/health/ready") is not None
        record = LaunchRecord.read(launch.record_path)
        assert (record.state, record.models) == ("ready", ("alpha",))
        assert stat.S_IMODE(launch.prepared.run_dir.stat().st_mode) == 0o700
        assert leftovers(prefix_of(launch.id))
        assert launch.stop() == 0
        assert launch.stop() == 0
    assert scene.kinds == ["starting", "loading", "ready", "stopped"]
    assert scene.left_behind() == []
    assert not launch.record_path.exists()
    assert not launch.log_file.exists()


def test_leaving_the_block_with_an_exception_leaves_nothing_either(world: World) -> None:
    scene = Scene(world)
    with pytest.raises(RuntimeError, match="in the middle"), scene.launch as launch:  # noqa: PT012
        launch.start()
        launch.wait_ready()
        raise RuntimeError("in the middle")
    assert scene.left_behind() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_supervision_and_the_stop_is_clean(world: World, number: int) -> None:
    scene = Scene(world)
    scene.on["ready"] = lambda: _later(number)
    assert scene.launch.run() == 0
    assert scene.kinds[-2:] == ["stopping", "stopped"]
    assert scene.left_behind() == []


@pytest.mark.parametrize("kind", ["starting", "loading"])
def test_a_signal_before_it_is_ready_ends_it_too(world: World, kind: str) -> None:
    world.plan(load_s=20.0)
    scene = Scene(world)
    scene.on[kind] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert scene.launch.run() == 0
    assert "ready" not in scene.kinds
    assert scene.left_behind() == []


def test_the_drain_waits_for_requests_in_flight(world: World) -> None:
    world.plan(drain_s=1.0)
    scene = Scene(world, log_file=world.root / "log")
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.stop() == 0
    assert "goodbye" in (world.root / "log").read_text()


def test_a_server_that_does_not_stop_in_time_is_killed_and_that_is_not_clean(world: World) -> None:
    world.plan(ignores_sigterm=True)
    scene = Scene(world, exit_timeout_s=0)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.stop() == 4
    assert "had to be killed 5 s after SIGTERM" in scene.events[-1].text
    assert scene.left_behind() == []


def test_a_second_signal_kills_at_once(world: World) -> None:
    world.plan(ignores_sigterm=True)
    scene = Scene(world, exit_timeout_s=25)
    scene.on["ready"] = lambda: _later(signal.SIGTERM)
    scene.on["stopping"] = lambda: _later(signal.SIGTERM, 0.5)
    assert scene.launch.run() == 4
    assert "second signal" in scene.events[-1].text
    assert scene.left_behind() == []


def test_the_servers_own_status_is_named_when_it_does_not_end_well(world: World) -> None:
    world.plan(exit_status=3)
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.stop() == 4
    assert "exit status 3" in scene.events[-1].text
    assert "goodbye" in scene.events[-1].text
    assert launch.log_file.exists()


def test_a_server_that_cannot_start_is_told_with_its_status_and_its_last_words(world: World) -> None:
    world.plan(exit_at_start=1)
    scene = Scene(world)
    with pytest.raises(StartFailed, match=r"(?s)exit status 1.*fake server cannot start"):
        scene.launch.run()
    assert scene.left_behind() == []
    assert not scene.launch.record_path.exists()
    assert scene.launch.log_file.exists()


def test_a_model_that_fails_to_load_is_told_at_once_with_the_reason(world: World) -> None:
    world.plan(load_error="no such bundle")
    scene = Scene(world, ready_timeout_s=600.0)
    with pytest.raises(StartFailed, match="model 'alpha' failed to load: no such bundle"):
        scene.launch.run()
    assert scene.left_behind() == []


def test_not_ready_in_time_says_what_it_waited_for(world: World) -> None:
    world.plan(load_s=20.0)
    scene = Scene(world, ready_timeout_s=0.6)
    with pytest.raises(StartFailed, match="still waiting until the server answers"):
        scene.launch.run()
    assert scene.left_behind() == []


def test_a_dead_stub_is_noticed_and_the_server_replaced(world: World) -> None:
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        before = _until_beating(scene)
        server_before = LaunchRecord.read(launch.record_path).server_pid
        os.kill(before, signal.SIGKILL)
        while (trouble := launch.trouble()) is None:
            pass
        assert f"(pid {before}) is dead" in trouble
        launch.recover(trouble)
        assert _until_beating(scene) != before
        record = LaunchRecord.read(launch.record_path)
        assert record.restarts == launch.restarts == 1
        assert record.server_pid != server_before
        assert record.state == "ready"
        assert launch.stop() == 0
    assert scene.kinds[3:7] == ["trouble", "restarting", "loading", "ready"]
    assert scene.left_behind() == []
    assert launch.log_file.exists(), "what happened stays readable"


def test_a_stuck_stub_is_noticed(world: World) -> None:
    scene = Scene(world, stall_timeout_s=0.5)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        pid = _until_beating(scene)
        os.kill(pid, signal.SIGSTOP)
        while (trouble := launch.trouble()) is None:
            threading.Event().wait(0.05)
        assert "has given no heartbeat" in trouble
    assert scene.left_behind() == []


def test_an_engine_loop_that_stands_still_is_noticed(world: World) -> None:
    world.plan(engine_age_s=90.0)
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        while (trouble := launch.trouble()) is None:
            pass
        assert "stood still for 90.0 s, 60 s are allowed" in trouble


def test_a_server_that_dies_is_restarted_until_the_budget_is_spent(world: World) -> None:
    scene = Scene(world, max_restarts=2)

    def kill_server() -> None:
        pid = LaunchRecord.read(scene.launch.record_path).server_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    scene.on["ready"] = kill_server
    with pytest.raises(
        ServerError, match=r"gave up: tritonserver .* killed by SIGKILL; more than 2 restarts within 600 s"
    ):
        scene.launch.run()
    assert scene.launch.restarts == 2
    assert scene.kinds.count("ready") == 3
    assert scene.left_behind() == []


def test_a_restart_that_fails_counts_and_is_tried_again(world: World) -> None:
    scene = Scene(world, max_restarts=2)
    scene.on["trouble"] = lambda: world.plan(exit_at_start=5)

    def kill_server() -> None:
        os.kill(LaunchRecord.read(scene.launch.record_path).server_pid or 0, signal.SIGKILL)

    scene.on["ready"] = kill_server
    with pytest.raises(ServerError, match=r"(?s)gave up: .*exit status 5.*fake server cannot start"):
        scene.launch.run()
    assert scene.kinds.count("restarting") == 2
    assert scene.left_behind() == []


def test_all_problems_come_in_one_report_and_nothing_is_touched(world: World) -> None:
    scene = Scene(
        world,
        repository=world.root / "missing",
        backend_dir=world.root / "also-missing",
        tritonserver=world.root / "none",
        grpc_port=4711,
        http_port=4711,
    )
    with pytest.raises(InputError) as caught, scene.launch as launch:
        launch.start()
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("cannot launch: 4 problems")
    assert len(lines) == 5
    assert not (world.root / "state").exists()


def test_taken_ports_alone_are_a_conflict(world: World) -> None:
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        taken = launch.prepared.ports.http
        with pytest.raises(ConflictError, match=f"port {taken} on 127.0.0.1 cannot be had.*--http-port"):
            Scene(world, http_port=taken).launch.run()


def test_two_launches_run_side_by_side_and_clean_only_their_own(world: World) -> None:
    first, second = Scene(world), Scene(world)
    with first.launch, second.launch:
        first.launch.start()
        second.launch.start()
        second.launch.wait_ready()
        assert first.launch.stop() == 0
        assert leftovers(prefix_of(second.launch.id))
        assert call(f"{second.launch.http_url}/v2/health/live") is not None
        assert second.launch.stop() == 0
    assert first.left_behind() == second.left_behind() == []


def test_the_pid_file_of_a_running_launch_is_refused(world: World) -> None:
    scene = Scene(world, pid_file=world.root / "pid")
    with scene.launch as launch:
        launch.start()
        state_record = world.root / "state" / "seekserve" / "launches" / f"{launch.id}.json"
        assert LaunchRecord.read(world.root / "pid") == LaunchRecord.read(state_record)
        with pytest.raises(TargetExists, match="is running"):
            Scene(world, pid_file=world.root / "pid").launch.run()
        assert launch.stop() == 0
    assert not (world.root / "pid").exists()
    assert not state_record.exists()


def test_serving_beyond_loopback_is_warned_about(world: World) -> None:
    scene = Scene(world, host="0.0.0.0")
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.http_url.startswith("http://127.0.0.1:")
    assert scene.kinds[0] == "warning"


def test_a_failed_launch_can_leave_its_reason_in_the_record(world: World) -> None:
    world.plan(exit_at_start=9)
    launch = Launch(world.options(), env=world.env, keeps_failed_record=True)
    with pytest.raises(StartFailed):
        launch.run()
    record = LaunchRecord.read(launch.record_path)
    assert record.state == "failed"
    assert "exit status 9" in str(record.error)
    assert world.left_behind(launch.id) == []


def test_outside_the_main_thread_it_starts_and_stops_without_signals(world: World) -> None:
    codes: list[int] = []

    def run() -> None:
        with Launch(world.options(), env=world.env) as launch:
            launch.start()
            launch.wait_ready()
            codes.append(launch.stop())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert codes == [0]


def test_a_host_of_another_machine_is_bad_input_and_not_a_port_conflict(world: World) -> None:
    with pytest.raises(InputError, match=r"--host 192\.0\.2\.1 is not an address of this machine") as caught:
        Scene(world, host="192.0.2.1").launch.run()
    assert "port" not in str(caught.value)


def test_only_the_chosen_models_of_a_repository_are_loaded(tmp_path: Path) -> None:
    scene = Scene(World.build(tmp_path, ("alpha", "beta")), models=("beta",))
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.models == ("beta",)
        assert launch.stop() == 0


def test_options_survive_the_way_to_a_detached_process(world: World) -> None:
    options = world.options(models=("alpha",), pid_file=world.root / "pid")
    assert LaunchOptions.from_json(json.loads(json.dumps(options.to_json()))) == options


def test_two_models_are_both_loaded_and_watched(tmp_path: Path) -> None:
    scene = Scene(World.build(tmp_path, ("alpha", "beta")))
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.models == ("alpha", "beta")
        while len(scene.beats()) < 2:
            assert launch.trouble() is None
        assert launch.stop() == 0
