from __future__ import annotations

import json
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from click.testing import CliRunner
from launch_world import World

from seekserve.cli.collect import command
from seekserve.monitor.collect import Subject, gather_parts
from seekserve.monitor.failed_requests import failed_requests
from seekserve.monitor.machine_facts import kernel_part, tail_part
from seekserve.server import Launch
from seekserve.server.record import LaunchRecord

LOG = """\
I1130 02:53:30.000001 1 server.cc:1] started
E1130 02:53:36.123456 77 model.py:9] request r7 failed in the engine: its KV blocks were lost (drill)
[ERROR] 2026-11-30 02:54:00.5 "the engine does not take request r9"
E1130 02:54:01.000000 77 model.py:9] taking in request r10 failed
"""


def test_failed_requests_are_read_from_the_log() -> None:
    found = [each.to_json() for each in failed_requests(LOG)]
    assert found == [
        {"time": "1130 02:53:36.123456", "id": "r7", "where": "in the engine",
         "reason": "its KV blocks were lost (drill)"},
        {"time": "2026-11-30 02:54:00.5", "id": "r9", "where": "at its start"},
        {"time": "1130 02:54:01.000000", "id": "r10", "where": "at arrival"},
    ]  # fmt: skip
    assert [each.id for each in failed_requests(LOG, most=1)] == ["r10"]


def test_of_the_kernel_s_log_only_what_concerns_a_server() -> None:
    said = "a usb stick\nNVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus\nOut of memory: Killed process 4\n"
    assert kernel_part(lambda argv: (0, said, "")).text == "".join(said.splitlines(keepends=True)[1:])
    refused = kernel_part(lambda argv: (1, "", f"{argv[0]}: read kernel buffer failed: Operation not permitted"))
    assert refused.text is None
    assert "not permitted" in refused.note
    assert kernel_part(lambda argv: None).note == "dmesg is not installed; journalctl is not installed"


def test_a_long_log_is_cut_at_a_line(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    part = tail_part("logs/x.log", log, most_bytes=20)
    assert part.text == "line 98\nline 99\n"
    assert part.note == "the last 20 of 790 bytes"
    assert "No such file" in tail_part("logs/x.log", tmp_path / "y").note


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.build(tmp_path)


def test_a_running_launch_without_its_secrets(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.plan(metrics='seekserve_running_requests{model="alpha"} 2\n')
    config = world.root / "repo" / "alpha" / "config.pbtxt"
    config.write_text('backend: "other"\nparameters { key: "api_key" value { string_value: "s3cret-of-config" } }\n')
    secrets = {"HF_TOKEN": "s3cret-of-env", "SEEKSERVE_SOME_PASSWORD": "s3cret-of-ours"}
    log = tmp_path / "server.log"
    with Launch(world.options(log_file=log), env={**world.env, **secrets}) as launch:
        launch.start()
        launch.wait_ready()
        keys = [launch.prepared.probe_key, launch.prepared.command.admin_key]
        with log.open("a") as file:
            file.write(LOG + f"using s3cret-of-env and --key {keys[0]}\n")
        monkeypatch.setenv("XDG_STATE_HOME", world.env["XDG_STATE_HOME"])
        target = tmp_path / "out" / "r.tar.gz"
        target.parent.mkdir()
        arguments = ["--pid-file", str(launch.record_path), "--interval-s", "0.1", "--out", str(target)]
        dry = CliRunner().invoke(command, [*arguments, "--dry-run"], standalone_mode=False)
        assert (dry.exception, list(target.parent.iterdir())) == (None, [])
        done = CliRunner().invoke(command, arguments, standalone_mode=False)
        assert done.exception is None, done.output
        again = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert "exists already" in str(again.exception)
    with tarfile.open(target) as tar:
        texts = {name.partition("/")[2]: tar.extractfile(name).read().decode() for name in tar.getnames()}  # type: ignore[union-attr]
    listed = {line.split()[0] for line in done.output.splitlines() if " missing " not in line and "  " in line}
    assert listed == set(texts) - {"MANIFEST.json"}
    for name in ("metrics/1.txt", "metrics/2.txt", "metrics/diagnosis.txt",
                 "launch/record.json", "launch/processes.json", "logs/server.log",
                 "repository/alpha/config.pbtxt", "versions.json", "machine/doctor.json"):  # fmt: skip
        assert texts[name].strip(), name
    assert 'running_requests{model="alpha"} 2' in texts["metrics/2.txt"]
    assert [each["id"] for each in json.loads(texts["launch/failed_requests.json"])] == ["r7", "r9", "r10"]
    assert any("tritonserver" in " ".join(each["argv"]) for each in json.loads(texts["launch/processes.json"]))
    everything = "\n".join(texts.values())
    for secret in ("s3cret", *keys):
        assert secret not in everything


def test_a_launch_that_is_dead_still_tells_what_is_left(world: World, tmp_path: Path) -> None:
    with Launch(world.options(log_file=tmp_path / "server.log"), env=world.env) as launch:
        launch.start()
        launch.wait_ready()
        record = replace(LaunchRecord.read(launch.record_path), pid_started_s=0.0)
    parts = {part.name: part for part in gather_parts(Subject(record=record, env=world.env), sleep=lambda s: None)}
    assert parts["launch/processes.json"].note == "no process of this launch is alive"
    assert "nobody answers" in parts["metrics/1.txt"].note
    assert "run folder is gone" in parts["launch/run"].note
    assert parts["logs/server.log"].text


def test_a_machine_alone(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path)}
    (tmp_path / "seekserve").mkdir()
    (tmp_path / "seekserve" / "breaker-1.json").write_text('{"running": [{"id": "r1", "prompt": "tell me"}]}')
    parts = {part.name: part for part in gather_parts(Subject(env=env, state_dir=tmp_path / "seekserve"))}
    assert parts["versions.json"].text
    assert parts["metrics/1.txt"].note == "no server is named, and no launch is recorded"
    record = parts["state/breaker-1.json"].text or ""
    assert '"r1"' in record
    assert "tell me" not in record
