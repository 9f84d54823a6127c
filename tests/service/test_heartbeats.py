"""When a waiting request is looked at; what is sent then, and by whom, is in `test_streams`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.service.fakes import RecordingSink

from seekserve_backend.answers import Inbound
from seekserve_backend.desk import Desk
from seekserve_backend.heartbeats import Heartbeats
from seekserve_backend.live import Live


def watched(heartbeat_ms: int) -> tuple[Heartbeats, Live, Any]:
    time = SimpleNamespace(now=0.0)
    beats = Heartbeats(cast(Desk, SimpleNamespace(clock=lambda: time.now)))
    live = Live("r1", Inbound(text=b"x", heartbeat_ms=heartbeat_ms), RecordingSink(), arrival_s=0.0, lane=1)
    beats.watch(live)
    return beats, live, time


def test_a_long_interval_is_kept() -> None:
    beats, live, time = watched(12_000)
    beaten = []
    for time.now in range(40):
        beaten += [(time.now, each) for each in beats._take(time.now)]
    assert beaten == [(n, live) for n in (12, 24, 36)]


def test_one_that_has_ended_is_not_held_until_its_next_sign_of_life() -> None:
    beats, live, _ = watched(2_000_000_000)
    live.is_closed = True
    assert beats._take(5.0) == []
    assert beats._due == []
