"""Asking for absent clients and beating for waiting ones stay within what they may cost, and forget nobody."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from tests.service.fakes import BYTES, RecordingSink

from seekserve_backend.answers import Inbound
from seekserve_backend.departures import Departures
from seekserve_backend.heartbeats import Heartbeats
from seekserve_backend.live import Live
from seekserve_backend.work import Work

ASK_S = 0.001


class World:
    """A desk of which only the open requests matter, and a clock that each question moves on."""

    def __init__(self, waiting: int, at_work: int) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.gone: list[str] = []
        self.lives = [self._live(n) for n in range(waiting + at_work)]
        self.works = [self._work(live) for live in self.lives[waiting:]]
        self.desk: Any = SimpleNamespace(
            cond=threading.Condition(), live={live.id: live for live in self.lives}, clock=lambda: self.now
        )
        streams: Any = SimpleNamespace(look=lambda: None, left=lambda live: self.gone.append(live.id))
        self.departures = Departures(self.desk, streams, lambda: self.works, lambda: self.now)

    def _live(self, number: int) -> Live:
        world = self

        class Sink(RecordingSink):
            def is_cancelled(self) -> bool:
                world.now += ASK_S
                world.asked.append(f"r{number}")
                return number % 7 == 3

        inbound = Inbound(text=b"x", stream=True, heartbeat_ms=100)
        return Live(f"r{number}", inbound, Sink(), arrival_s=0.0, lane=number)

    def _work(self, live: Live) -> Work:
        work = live.work = Work(live.id, live.inbound, (1,), BYTES)
        work.lives = (live,)
        return work


def test_a_turn_ends_with_its_time_and_everybody_gets_one() -> None:
    world = World(waiting=30, at_work=0)
    world.departures._look()
    turns = 0
    while len(world.asked) < 30:
        spent_s = world.departures._ask_some()
        assert 0 < spent_s <= 0.004 + ASK_S
        turns += 1
    assert sorted(world.asked) == sorted(live.id for live in world.lives)
    assert world.gone == ["r3", "r10", "r17", "r24"]
    assert turns >= 30 * ASK_S / 0.005


def test_those_at_work_come_first_and_leave_half_of_the_time() -> None:
    world = World(waiting=50, at_work=20)
    world.departures._look()
    world.departures._ask_some()
    at_work = {work.id for work in world.works}
    first = len(world.asked) // 2
    assert {*world.asked[:first]} <= at_work
    assert not {*world.asked[first:]} & at_work
    for _ in range(30):
        world.departures._ask_some()
    assert {*world.asked} == {live.id for live in world.lives}


def test_no_more_heartbeats_at_once_than_they_may_cost_and_all_in_turn() -> None:
    world = World(waiting=50, at_work=0)
    beats = Heartbeats(world.desk)
    for live in world.lives:
        beats.watch(live)
    assert beats._take(0.05) == []
    world.lives[0].is_closed = True
    taken = [live.id for _ in range(3) for live in beats._take(0.2)]
    assert taken == [live.id for live in world.lives[1:]]
    assert beats._take(0.2) == [], "each is due again only after its own interval"
    assert len(beats._take(0.31)) == 20
