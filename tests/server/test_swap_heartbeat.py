"""What a heartbeat says of a swap, and that an engine which loads for one is not taken for a dead one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seekserve.server.heartbeat import BeatSwap, HeartbeatWatch, read_heartbeats

SWAP = {"id": "1", "state": "loading", "text": "", "failed_requests": 0, "load_timeout_s": 900.0}


def write(run_dir: Path, **more: Any) -> None:
    beat = {"model": "m", "pid": 1, "time_s": 1.0, "engine_loop_age_s": 700.0, "is_rebuilding": True}
    (run_dir / "heartbeat-m-1.json").write_text(json.dumps({**beat, **more}))


def test_bundle_and_swap_are_read(tmp_path: Path) -> None:
    write(tmp_path, bundle_dir="/new", swap=SWAP)
    (beat,) = read_heartbeats(tmp_path)
    assert (beat.bundle_dir, beat.swap) == ("/new", BeatSwap(**SWAP))  # type: ignore[arg-type]


@pytest.mark.parametrize("swap", [None, {}, [], {**SWAP, "of another version": 1}])
def test_a_swap_that_cannot_be_read_leaves_the_beat_alive(tmp_path: Path, swap: Any) -> None:
    write(tmp_path, swap=swap)
    (beat,) = read_heartbeats(tmp_path)
    assert (beat.bundle_dir, beat.swap, beat.is_rebuilding) == (None, None, True)


@pytest.mark.parametrize(
    ("swap", "is_trouble"), [(None, True), (SWAP, False), ({**SWAP, "load_timeout_s": 650.0}, True)]
)
def test_a_swap_may_load_as_long_as_its_bundle_needs(tmp_path: Path, swap: Any, is_trouble: bool) -> None:
    watch = HeartbeatWatch(
        expected=["m"],
        stall_timeout_s=4.0,
        engine_stall_s=60.0,
        rebuild_timeout_s=600.0,
        now_s=0.0,
        is_running=lambda _pid: True,
    )
    write(tmp_path, swap=swap)
    trouble = watch.trouble(read_heartbeats(tmp_path), 1.0)
    assert (trouble is not None) is is_trouble
