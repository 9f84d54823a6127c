from __future__ import annotations

import json
from pathlib import Path

import pytest

from seekserve.server.heartbeat import Heartbeat, HeartbeatWatch, read_heartbeats


def _beat(
    time_s: float, *, pid: int = 7, model: str = "m", age_s: float | None = 0.1, is_rebuilding: bool = False
) -> Heartbeat:
    return Heartbeat(model=model, pid=pid, time_s=time_s, engine_loop_age_s=age_s, is_rebuilding=is_rebuilding)


def _watch(*expected: str, dead: frozenset[int] = frozenset()) -> HeartbeatWatch:
    return HeartbeatWatch(
        expected=expected,
        stall_timeout_s=4.0,
        engine_stall_s=60.0,
        rebuild_timeout_s=600.0,
        now_s=0.0,
        is_running=lambda pid: pid not in dead,
    )


def test_a_beating_stub_is_no_trouble_however_long() -> None:
    watch = _watch("m")
    assert all(watch.trouble([_beat(float(tick // 2))], tick / 2) is None for tick in range(1, 400))


def test_a_dead_stub_is_trouble_at_once() -> None:
    assert "(pid 7) is dead" in str(_watch("m", dead=frozenset({7})).trouble([_beat(1.0)], 0.5))


def test_a_standing_heartbeat_is_trouble_within_five_seconds_of_the_last_change() -> None:
    watch = _watch("m")
    looks = [tick / 2 for tick in range(1, 20)]
    found = next(now_s for now_s in looks if watch.trouble([_beat(1.0)], now_s) is not None)
    assert 4.0 < found <= 5.0


def test_the_wall_clock_may_jump_either_way() -> None:
    watch = _watch("m")
    for tick, time_s in enumerate([1e9, 5.0, 2e9, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0]):
        assert watch.trouble([_beat(time_s)], float(tick)) is None


@pytest.mark.parametrize(("age_s", "sentence"), [(59.9, None), (60.1, "stood still for 60.1 s"), (1e9, "is broken")])
def test_an_engine_loop_that_stands_still_or_is_broken_is_trouble(age_s: float, sentence: str | None) -> None:
    trouble = _watch("m").trouble([_beat(1.0, age_s=age_s)], 0.5)
    assert trouble is None if sentence is None else sentence in str(trouble)


@pytest.mark.parametrize(
    ("age_s", "sentence"),
    [(599.9, None), (600.1, "has been rebuilding its engine for 600.1 s, 600 s are allowed"), (1e9, "is broken")],
)
def test_an_engine_that_is_rebuilt_has_as_long_as_a_start(age_s: float, sentence: str | None) -> None:
    trouble = _watch("m").trouble([_beat(1.0, age_s=age_s, is_rebuilding=True)], 0.5)
    assert trouble is None if sentence is None else sentence in str(trouble)


def test_rebuilding_is_read_from_the_file_and_false_where_it_is_not_said(tmp_path: Path) -> None:
    beat = {"model": "m", "pid": 7, "time_s": 1.5, "engine_loop_age_s": 70.0}
    for pid, said in enumerate(({"is_rebuilding": True}, {"is_rebuilding": False}, {})):
        (tmp_path / f"heartbeat-m-{pid}.json").write_text(json.dumps(beat | said))
    assert [beat.is_rebuilding for beat in read_heartbeats(tmp_path)] == [True, False, False]


def test_an_engine_without_loop_is_judged_by_its_heartbeat_alone() -> None:
    assert _watch("m").trouble([_beat(1.0, age_s=None)], 0.5) is None


def test_an_expected_model_must_begin_to_beat() -> None:
    watch = _watch("m", "n")
    for tick in range(1, 9):
        assert watch.trouble([_beat(float(tick))], tick / 2) is None
    assert "model 'n' has had no heartbeat for 4.5 s" in str(watch.trouble([_beat(99.0)], 4.5))


def test_a_model_of_another_backend_need_not_beat_but_is_watched_once_it_does() -> None:
    watch = _watch()
    assert watch.trouble([], 1.9) is None
    assert watch.trouble([_beat(1.0, model="x")], 3.0) is None
    assert watch.trouble([], 4.9) is None
    assert watch.trouble([], 6.8) is None
    assert "model 'x'" in str(watch.trouble([], 7.1))


def test_a_reloaded_model_may_change_its_stub() -> None:
    watch = _watch("m", dead=frozenset({7}))
    assert watch.trouble([_beat(1.0, pid=8)], 0.5) is None
    assert watch.trouble([_beat(1.5, pid=8), _beat(1.5, pid=9)], 1.0) is None
    assert watch.trouble([_beat(2.0, pid=9)], 1.5) is None


def test_a_supervisor_that_was_held_up_itself_blames_nobody() -> None:
    watch = _watch("m")
    assert watch.trouble([_beat(1.0)], 0.5) is None
    assert watch.trouble([_beat(1.0)], 100.0) is None
    assert watch.trouble([_beat(1.0)], 101.9) is None
    assert watch.trouble([_beat(1.0)], 103.8) is None
    assert watch.trouble([_beat(1.0)], 104.2) is not None


def test_files_are_read_and_half_written_or_foreign_ones_passed_over(tmp_path: Path) -> None:
    good = {"model": "m", "pid": 7, "time_s": 1.5, "engine_loop_age_s": None}
    (tmp_path / "heartbeat-m-7.json").write_text(json.dumps(good))
    (tmp_path / "heartbeat-n-8.json").write_text(json.dumps(good)[:20])
    (tmp_path / "heartbeat-o-9.json").write_text("[1]")
    (tmp_path / "heartbeat-p-1.tmp").write_text(json.dumps(good))
    assert read_heartbeats(tmp_path) == [_beat(1.5, age_s=None)]
    assert read_heartbeats(tmp_path / "missing") == []
