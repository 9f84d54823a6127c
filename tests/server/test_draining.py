"""When a server that was asked to stop may be ended: nothing open for long enough, and every model known."""

from __future__ import annotations

import pytest

from seekserve.server.draining import DrainWatch
from seekserve.server.heartbeat import Heartbeat


def beat(open_requests: int | None) -> Heartbeat:
    return Heartbeat(model="m", pid=1, time_s=0.0, engine_loop_age_s=0.0, open_requests=open_requests)


@pytest.mark.parametrize(
    ("looks", "all_ours", "expected"),
    [
        ([(0.0, [0]), (3.0, [0]), (4.0, [0])], True, [False, False, True]),
        ([(0.0, [0]), (3.0, [2]), (4.0, [0]), (7.9, [0]), (8.0, [0])], True, [False, False, False, False, True]),
        ([(0.0, []), (4.0, [])], True, [False, True]),  # every stub has unloaded, the server still stands
        ([(0.0, [0, 1]), (9.0, [0, 1])], True, [False, False]),
        ([(0.0, [None]), (9.0, [None])], True, [False, False]),  # a backend that does not say
        ([(0.0, [0]), (9.0, [0])], False, [False, False]),
    ],
)
def test_only_an_idle_server_of_known_models_may_be_ended(
    looks: list[tuple[float, list[int | None]]], all_ours: bool, expected: list[bool]
) -> None:
    watch = DrainWatch(all_ours=all_ours, grace_s=4.0)
    assert [watch.has_nothing_left([beat(n) for n in beats], now_s) for now_s, beats in looks] == expected
