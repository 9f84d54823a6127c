"""The life of the engine, seen alone: how often it is made anew, when it is given up, and how old the loop is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.fakes import KV, LIMITS, policy, synthetic

from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.desk import Desk
from seekserve_backend.engine_keeper import EngineKeeper
from seekserve_backend.engine_loop import EngineLoop
from seekserve_backend.engines.port import Engine
from seekserve_backend.outbox import Outbox


class Scene:
    """Making an engine takes a minute, which only the clock here knows."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.made: list[Engine] = []
        self.outbox = Outbox(workers=1)
        self.desk = Desk(Scheduler(policy(), LIMITS, KV), self.outbox, lambda: self.now, policy())

    def make(self) -> Engine:
        self.now += 60.0
        self.made.append(synthetic())
        return self.made[-1]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.outbox.close(5.0)


def test_the_third_failure_in_a_row_is_the_end(scene: Scene) -> None:
    keeper = EngineKeeper(scene.desk, scene.make)
    for engines in (2, 3):
        keeper.make_anew()
        assert (len(scene.made), keeper.engine) == (engines, scene.made[-1])
    keeper.make_anew()
    assert (len(scene.made), keeper.restarts, keeper.engine, keeper.stats()) == (3, 2, None, None)
    assert keeper.is_broken
    assert not keeper.is_rebuilding


def test_a_step_that_goes_well_ends_the_row(scene: Scene) -> None:
    keeper = EngineKeeper(scene.desk, scene.make)
    for _ in range(4):
        keeper.make_anew()
        keeper.worked()
    assert (keeper.restarts, keeper.is_broken) == (4, False)


def test_an_engine_that_cannot_be_made_fails_the_constructor(scene: Scene) -> None:
    def broken() -> Engine:
        raise RuntimeError("no such weights")

    with pytest.raises(RuntimeError, match="no such weights"):
        EngineKeeper(scene.desk, broken)


def test_the_loop_is_not_old_for_the_time_that_making_an_engine_took(scene: Scene) -> None:
    keeper = EngineKeeper(scene.desk, scene.make)
    loop = EngineLoop(scene.desk, keeper)
    assert (keeper.load_s, loop.age_s) == (60.0, 0.0)
    scene.now += 2.0
    assert loop.age_s == 2.0
    keeper.make_anew()
    assert (loop.age_s, keeper.is_rebuilding) == (0.0, False)
