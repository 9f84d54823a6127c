"""When a server that was asked to stop may be ended: nothing open for long enough, said by living stubs of known
models."""

from __future__ import annotations

import pytest

from seekserve.server.draining import DrainWatch
from seekserve.server.heartbeat import Heartbeat

Said = list[tuple[float, int | None]]
"""(time in the beat, open requests) of each stub"""


def beats(said: Said) -> list[Heartbeat]:
    return [
        Heartbeat(model="m", pid=pid, time_s=time_s, engine_loop_age_s=0.0, open_requests=open_requests)
        for pid, (time_s, open_requests) in enumerate(said, start=1)
    ]


def judge(
    looks: list[tuple[float, Said]],
    *,
    at_sigterm: Said | None = None,
    all_ours: bool = True,
    dead: frozenset[int] = frozenset(),
) -> list[bool]:
    watch = DrainWatch(
        all_ours=all_ours,
        at_sigterm=beats(at_sigterm or [(100.0, 0)]),
        is_running=lambda pid: pid not in dead,
        grace_s=4.0,
    )
    return [watch.has_nothing_left(beats(said), now_s) for now_s, said in looks]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0.0, [(101.0, 0)]), (3.0, [(104.0, 0)]), (4.0, [(105.0, 0)])], [False, False, True]),
        (
            [(0.0, [(101.0, 0)]), (3.0, [(104.0, 2)]), (4.0, [(105.0, 0)]), (7.9, [(108.0, 0)]), (8.0, [(109.0, 0)])],
            [False, False, False, False, True],
        ),
        ([(0.0, []), (4.0, [])], [False, True]),  # every stub has unloaded, the server still stands
        ([(0.0, [(101.0, 0)]), (4.0, [])], [False, True]),  # unloaded meanwhile
        ([(0.0, [(101.0, 0), (101.0, 1)]), (9.0, [(110.0, 0), (110.0, 1)])], [False, False]),
        ([(0.0, [(101.0, None)]), (9.0, [(110.0, None)])], [False, False]),  # a backend that does not say
    ],
)
def test_only_an_idle_server_may_be_ended(looks: list[tuple[float, Said]], expected: list[bool]) -> None:
    assert judge(looks) == expected


def test_models_that_do_not_beat_are_never_known_to_be_idle() -> None:
    assert judge([(0.0, [(101.0, 0)]), (9.0, [(110.0, 0)])], all_ours=False) == [False, False]


def test_a_beat_from_before_sigterm_says_nothing_about_what_came_after_it() -> None:
    stopped: Said = [(100.0, 0)]
    assert judge([(now_s, stopped) for now_s in (0.0, 4.0, 8.0, 30.0)]) == [False] * 4


def test_a_stub_that_falls_silent_after_one_idle_beat_is_not_known_to_be_idle() -> None:
    assert judge([(0.0, [(101.0, 0)]), (4.0, [(101.0, 0)]), (30.0, [(101.0, 0)])]) == [False] * 3


def test_one_silent_stub_among_beating_ones_is_enough() -> None:
    at_sigterm: Said = [(100.0, 0), (100.0, 0)]
    looks: list[tuple[float, Said]] = [(0.0, [(101.0, 0), (100.0, 0)]), (9.0, [(110.0, 0), (100.0, 0)])]
    assert judge(looks, at_sigterm=at_sigterm) == [False, False]


def test_a_stub_that_crashed_did_not_answer_everything_although_its_last_beat_was_idle() -> None:
    looks: list[tuple[float, Said]] = [(0.0, [(101.0, 0)]), (4.0, [(102.0, 0)]), (9.0, [(102.0, 0)])]
    assert judge(looks, dead=frozenset({1})) == [False] * 3
