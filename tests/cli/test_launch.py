"""`seekserve launch` as a process of its own, against the fake server: exit codes, both streams, and what is left."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def world(tmp_path: Path) -> Any:
    folder = str(Path(__file__).parents[1] / "server")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from launch_world import World

    return World.build(tmp_path)


@pytest.fixture
def foreground(world: Any) -> Iterator[subprocess.Popen[str]]:
    """`launch --json` in the foreground, as it would run in a terminal of its own."""
    process = subprocess.Popen(
        world.argv("--json"),
        env=world.env,
        cwd=world.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def _run(world: Any, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seekserve", *argv],
        env=world.env,
        cwd=world.root,
        capture_output=True,
        text=True,
        timeout=60,
    )


def _run_launch(world: Any, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(world.argv(*more), env=world.env, cwd=world.root, capture_output=True, text=True, timeout=60)


def _until(process: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    assert process.stdout is not None
    deadline_s = time.monotonic() + 40
    while time.monotonic() < deadline_s:
        select.select([process.stdout], [], [], 1.0)
        line = process.stdout.readline()
        assert line, "ended early"
        event: dict[str, Any] = json.loads(line)
        if event["event"] == kind:
            return event
    raise AssertionError(f"no {kind} event")


def _until_nothing_is_left(world: Any, launch_id: str) -> None:
    deadline_s = time.monotonic() + 20
    while world.left_behind(launch_id) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert world.left_behind(launch_id) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_a_signal_stops_it_cleanly_with_0(
    world: Any, foreground: subprocess.Popen[str], number: int
) -> None:
    ready = _until(foreground, "ready")
    assert ready["models"] == ["alpha"]
    foreground.send_signal(number)
    out, err = foreground.communicate(timeout=40)
    assert (foreground.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["event"] == "stopped"
    assert world.left_behind(ready["id"]) == []


def test_a_launch_that_is_killed_outright_is_cleaned_up_after(world: Any, foreground: subprocess.Popen[str]) -> None:
    ready = _until(foreground, "ready")
    foreground.kill()
    foreground.wait()
    _until_nothing_is_left(world, ready["id"])
    status = _run(world, "status")
    assert (status.returncode, f"launch {ready['id']}: dead" in status.stdout) == (4, True)
    stopped = _run(world, "stop")
    assert stopped.returncode == 4
    assert "its supervising process was gone" in stopped.stderr
    assert _run(world, "status").returncode == 2


def test_a_dead_stub_is_announced_and_the_server_restarted(foreground: subprocess.Popen[str]) -> None:
    ready = _until(foreground, "ready")
    run_dir = Path(json.loads(Path(ready["record"]).read_text())["run_dir"])
    while not (beats := list(run_dir.glob("heartbeat-*.json"))):
        time.sleep(0.02)
    time.sleep(0.3)  # long enough for the supervisor to have seen it
    os.kill(int(beats[0].stem.rpartition("-")[2]), signal.SIGKILL)
    assert "is dead" in _until(foreground, "trouble")["text"]
    assert _until(foreground, "ready")["restarts"] == 1
    foreground.send_signal(signal.SIGTERM)
    foreground.communicate(timeout=40)
    assert foreground.returncode == 0


def test_people_get_sentences(world: Any) -> None:
    world.plan(exit_at_start=1)
    done = _run_launch(world)
    assert done.returncode == 4
    assert "loading alpha" in done.stdout
    assert done.stderr.startswith("error: tritonserver ended before it was ready: tritonserver (pid ")
    assert "fake server cannot start" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_problem_is_reported_and_nothing_started(world: Any) -> None:
    done = _run(world, "launch", "nowhere", "--backend-dir", "neither", "--tritonserver", "nothing")
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot launch: 3 problems")
    assert not (world.root / "state").exists()


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["launch"], "REPOSITORY was not given"),
        (["launch", "repo"], "--backend-dir was not given"),
        (["launch", "repo", "--http-port", "70000"], "70000 is not in the range"),
        (["launch", "repo", "--ready-timeout-s", "nan"], "--ready-timeout-s is nan, which is no number of seconds"),
        (["launch", "repo", "--poll-s", "inf"], "--poll-s is inf, which is no number of seconds"),
        (["stop"], "no launch is recorded"),
        (["stop", "--pid-file", "x", "--id", "y"], "both given"),
        (["status", "--pid-file", "x"], "launch record x does not exist"),
        (["status", "--url", "127.0.0.1:1", "--id", "y"], "leave out --pid-file and --id"),
        (["status", "--metrics-url", "http://127.0.0.1:1"], "goes with --url"),
        (["stop", "--pid-file", "plan.json"], "plan.json is not a launch record"),
        (["stop", "--pid-file", "."], "cannot be read: Is a directory"),
    ],
)
def test_bad_input_is_2_and_one_sentence(world: Any, argv: list[str], text: str) -> None:
    done = _run(world, *argv)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("flag", ["--pid-file", "--log-file"])
def test_a_record_or_log_that_cannot_be_written_is_one_sentence_and_nothing_is_left(world: Any, flag: str) -> None:
    done = _run_launch(world, flag, "/proc/nope/x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: cannot launch: {flag} /proc/nope/x cannot be written")
    assert not (world.root / "state").exists()


def test_the_help_says_how_soon_each_kind_of_stuck_backend_is_noticed(world: Any) -> None:
    text = " ".join(_run(world, "launch", "--help").stdout.split())
    assert "dead or silent (noticed within 5 seconds)" in text
    assert "in one engine step (noticed after 60 seconds, --engine-stall-s)" in text


def test_dry_run_prints_the_command_with_masked_keys_and_starts_nothing(world: Any) -> None:
    done = _run_launch(world, "--dry-run", "--json")
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert plan["argv"][0] == str(world.root / "tritonserver")
    assert plan["env"]["SEEKSERVE_PROBE_KEY"] == "****"
    assert any(argument.endswith("seekserve-admin-key=****") for argument in plan["argv"])
    assert not (world.root / "state").exists()
    assert (plan["kind"], plan["world_size"], plan["blockers"]) == ("single", 1, [])
    text = _run_launch(world, "--dry-run").stdout
    assert "--model-control-mode=explicit" in text
    assert "# ready within 20 s (--ready-timeout-s)" in text


@pytest.fixture
def two_ranks(world: Any) -> Any:
    """The world with a stock engine of two ranks beside its model."""
    engine = world.root / "engine"
    engine.mkdir()
    (engine / "config.json").write_text('{"pretrained_config": {"mapping": {"tp_size": 2, "pp_size": 1}}}')
    model = world.root / "repo" / "tensorrt_llm"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        f'backend: "tensorrtllm"\nparameters {{ key: "gpt_model_path" value {{ string_value: "{engine}" }} }}\n'
    )
    return world


def test_dry_run_says_what_runs_where_and_why_even_where_it_could_not_run(two_ranks: Any) -> None:
    more = ("--dry-run", "--hosts", "node1:1,node2:1", "--shared-dir", str(two_ranks.root))
    plan = json.loads(_run_launch(two_ranks, *more, "--json").stdout)
    assert (plan["kind"], plan["launcher"], plan["world_size"]) == ("leader", "mpirun", 2)
    assert plan["product"].startswith("tp 2 x pp 1 = 2 of model 'tensorrt_llm', from ")
    assert [(rank["host"], rank["listens"]) for rank in plan["servers"]] == [("node1", True), ("node2", False)]
    assert any("rank 0 is to run on node1, which is not this machine" in blocker for blocker in plan["blockers"])
    text = _run_launch(two_ranks, *more).stdout
    assert "# why: model 'tensorrt_llm' is a C++ engine" in text
    assert "# rank 1 on node2: no ports; models tensorrt_llm" in text
    assert "# not here: rank 0 is to run on node1" in text
    refused = _run_launch(two_ranks, *more[1:])
    assert (refused.returncode, "which is not this machine" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--world-size", "3"), "tp 2 x pp 1 = 2 of model 'tensorrt_llm'"),
        (("--ranks", "single"), "a lone tritonserver would wait"),
        (("--hosts", "a:1,b:1"), "--shared-dir"),
        (("--hosts", "a"), "host a has no slots"),
        (("--ranks", "several"), "'several' is not one of"),
    ],
)
def test_a_plan_that_cannot_be_is_2_and_says_why(two_ranks: Any, more: tuple[str, ...], text: str) -> None:
    done = _run_launch(two_ranks, "--dry-run", *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr


def test_the_file_of_choices_fills_in_and_flags_override_it(world: Any) -> None:
    (world.root / "seekserve.yaml").write_text(
        "server: {host: 127.0.0.1, http_port: 4701, grpc_port: 4702, metrics_port: 4703}\n"
        "paths: {repository: repo, backends: backends}\n"
    )
    argv = ["launch", "--dry-run", "--json", "--tritonserver", "./tritonserver", "--grpc-port", "4799"]
    done = _run(world, *argv)
    assert done.returncode == 0, done.stderr
    ports = [argument.partition("=")[2] for argument in json.loads(done.stdout)["argv"] if "-port=" in argument]
    assert ports == ["4701", "4799", "4703"]


def test_detach_status_and_stop(world: Any) -> None:
    pid_file = world.root / "here" / "launch.pid"
    done = _run_launch(world, "--detach", "--pid-file", str(pid_file))
    assert done.returncode == 0, done.stderr
    assert f"pid file: {pid_file}" in done.stdout
    record = json.loads(pid_file.read_text())
    try:
        status = _run(world, "status", "--json")
        assert (status.returncode, json.loads(status.stdout)["id"]) == (0, record["id"])
        assert "model alpha: ready" in _run(world, "status", "--pid-file", str(pid_file)).stdout
        again = _run_launch(world, "--detach", "--pid-file", str(pid_file))
        assert (again.returncode, "is running" in again.stderr) == (3, True)
    finally:
        stopped = _run(world, "stop", "--pid-file", str(pid_file))
    assert (stopped.returncode, stopped.stdout) == (0, f"launch {record['id']} stopped cleanly\n")
    assert world.left_behind(record["id"]) == []
    assert not pid_file.exists()


def test_a_detached_launch_that_fails_tells_its_parent(world: Any) -> None:
    world.plan(exit_at_start=6)
    done = _run_launch(world, "--detach")
    assert done.returncode == 4
    assert "exit status 6" in done.stderr
    assert "fake server cannot start" in done.stderr
    assert list((world.root / "state" / "seekserve" / "launches").glob("*.json")) == []


def test_stop_names_the_servers_own_status(world: Any) -> None:
    world.plan(exit_status=5)
    assert _run_launch(world, "--detach").returncode == 0
    stopped = _run(world, "stop", "--json")
    assert stopped.returncode == 4
    outcome = json.loads(stopped.stdout)
    assert outcome["is_clean"] is False
    assert "exit status 5" in outcome["text"]
    assert world.left_behind(outcome["id"]) == []


def test_stop_kills_what_does_not_end_in_time(world: Any) -> None:
    world.plan(ignores_sigterm=True)
    assert _run_launch(world, "--detach").returncode == 0
    stopped = _run(world, "stop", "--timeout-s", "0.5", "--json")
    assert stopped.returncode == 4
    outcome = json.loads(stopped.stdout)
    assert "did not stop in time" in outcome["text"]
    _until_nothing_is_left(world, outcome["id"])
