from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from seekserve.errors import InputError, TargetExists
from seekserve.server.cleanup import claim_record_path, clean_after
from seekserve.server.record import LaunchRecord, default_record_path, find_records, process_started_s
from seekserve.server.stopping import choose_record


def _record(path: Path, **changes: Any) -> LaunchRecord:
    record = LaunchRecord(
        id="00000001",
        paths=(str(path),),
        state="ready",
        pid=os.getpid(),
        pid_started_s=process_started_s(os.getpid()) or 0.0,
        server_pid=None,
        server_started_s=None,
        repository="/r",
        models=("a", "b"),
        http_url="http://127.0.0.1:1",
        grpc_url="127.0.0.1:2",
        metrics_url="http://127.0.0.1:3/metrics",
        shm_prefix="seekserve_00000001_",
        run_dir="/nowhere/seekserve-00000001",
        log_file="/l",
        exit_timeout_s=3,
        restarts=0,
        started_s=1.0,
    )
    return dataclasses.replace(record, **changes)


def test_what_is_written_is_read_back_and_readable_by_the_owner_only(tmp_path: Path) -> None:
    record = _record(tmp_path / "deep" / "x.json")
    record.write()
    assert LaunchRecord.read(tmp_path / "deep" / "x.json") == record
    assert stat.S_IMODE((tmp_path / "deep" / "x.json").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.json"]
    record.remove()
    assert list((tmp_path / "deep").iterdir()) == []


_OTHER = '{"schema_version": %d, "id": "1", "pid": 1, "run_dir": "/x", "shm_prefix": "y"}'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not a launch record"),
        ("[]", "is not a launch record"),
        ("4711\n", "is not a launch record"),
        ('{"schema_version": 1}', "is not a launch record"),
        ('{"schema_version": 2, "name": "a bundle"}', "is not a launch record"),
        ('{"name": "any"}', "is not a launch record"),
        (_OTHER % 2, "schema version 2, this toolkit reads 1"),
        (_OTHER % 1, "is damaged"),
        (None, "does not exist"),
    ],
)
def test_what_is_no_record_is_said(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=sentence) as caught:
        LaunchRecord.read(path)
    assert ("use the seekserve version" in str(caught.value)) is ("schema version" in sentence)


def test_a_folder_is_no_record_and_that_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        LaunchRecord.read(tmp_path)


def test_a_record_that_is_removed_meanwhile_is_simply_not_there(tmp_path: Path) -> None:
    assert LaunchRecord.read_if_there(tmp_path / "x") is None
    _record(tmp_path / "x").write()
    assert LaunchRecord.read_if_there(tmp_path / "x") is not None


def test_one_place_that_cannot_be_written_does_not_keep_the_record_from_the_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    record = dataclasses.replace(_record(tmp_path / "x"), paths=(str(tmp_path / "file" / "y"), str(tmp_path / "x")))
    with pytest.raises(OSError, match="file"):
        record.write()
    assert LaunchRecord.read(tmp_path / "x") == record
    with pytest.raises(OSError, match="file"):
        record.remove()
    assert not (tmp_path / "x").exists()


def test_a_reused_process_id_is_not_the_launch(tmp_path: Path) -> None:
    record = _record(tmp_path / "x")
    assert record.supervisor_is_alive()
    assert not dataclasses.replace(record, pid_started_s=record.pid_started_s - 60).supervisor_is_alive()
    assert not record.server_is_alive()


def test_a_running_launchs_record_is_not_overwritten(tmp_path: Path) -> None:
    _record(tmp_path / "x").write()
    with pytest.raises(TargetExists, match=f"is running .pid {os.getpid()}"):
        claim_record_path(tmp_path / "x")
    assert (tmp_path / "x").exists()


def test_a_file_that_is_no_record_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("precious")
    with pytest.raises(TargetExists, match="left alone"):
        claim_record_path(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "precious"


def test_the_record_of_a_dead_launch_is_cleaned_up_after(tmp_path: Path) -> None:
    run_dir = tmp_path / "seekserve-00000001"
    run_dir.mkdir()
    _record(tmp_path / "x", pid_started_s=0.0, run_dir=str(run_dir)).write()
    cleaned = claim_record_path(tmp_path / "x")
    assert str(cleaned) == "0 leftover processes ended, 0 shared-memory files removed"
    assert not (tmp_path / "x").exists()
    assert not run_dir.exists()
    assert claim_record_path(tmp_path / "x") is None


@pytest.mark.parametrize("changes", [{"run_dir": "/etc"}, {"shm_prefix": "seekserve_"}])
def test_a_record_whose_parts_do_not_belong_together_removes_nothing(tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(InputError, match="nothing was removed"):
        clean_after(_record(tmp_path / "x", **changes))


def test_the_record_is_chosen_by_flag_by_id_or_by_being_the_only_one(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    assert choose_record(pid_file=Path("/p"), launch_id=None, env=env) == Path("/p")
    assert choose_record(pid_file=None, launch_id="ab", env=env) == default_record_path("ab", env)
    with pytest.raises(InputError, match="no launch is recorded"):
        choose_record(pid_file=None, launch_id=None, env=env)
    _record(default_record_path("one", env)).write()
    assert choose_record(pid_file=None, launch_id=None, env=env) == default_record_path("one", env)
    _record(default_record_path("two", env)).write()
    with pytest.raises(InputError, match="one, two; choose with --id"):
        choose_record(pid_file=None, launch_id=None, env=env)
    with pytest.raises(InputError, match="both given"):
        choose_record(pid_file=Path("/p"), launch_id="ab", env=env)
    assert len(find_records(env)) == 2


def test_the_record_is_plain_json_with_pid_and_urls(tmp_path: Path) -> None:
    _record(tmp_path / "x").write()
    data = json.loads((tmp_path / "x").read_text())
    assert data["pid"] == os.getpid()
    assert {"http_url", "grpc_url", "metrics_url", "models", "restarts", "log_file"} <= set(data)
