"""Orders of a launch as files, and what the launch does with good, bad and too many of them."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from launch_world import Scene, World

from seekserve.server.launch_orders import LaunchOrders, in_background
from seekserve.server.models import ServedModel
from seekserve.server.orders import ORDERS_FOLDER, OrderResult, SwapOrder, pending_orders, read_results
from seekserve.server.preflight import Prepared, prepare
from seekserve.server.status import status_lines, status_of_record
from seekserve.server.swap_run import ServerHands
from seekserve_backend.contract.fields import ContractError

ID = "0123456789ab"


def order(**changes: Any) -> SwapOrder:
    values: dict[str, Any] = {
        "id": ID,
        "model": "alpha",
        "old_bundle_dir": "/old",
        "bundle_dir": "/new",
        "how": "side-by-side",
        "files": {"config.pbtxt": "text"},
        "drain_timeout_s": 300.0,
        "load_timeout_s": 600.0,
    }
    return SwapOrder(**{**values, **changes})


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run" / ORDERS_FOLDER).mkdir(parents=True)
    return tmp_path / "run"


def test_an_order_is_read_as_it_was_written_and_nobody_else_may(run_dir: Path) -> None:
    path = order().write(run_dir)
    assert SwapOrder.read(path) == order()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert pending_orders(run_dir) == [path]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "reboot"}, "an order of kind 'reboot' and schema 1; this launch takes the kind 'swap' of schema 1"),
        ({"schema_version": 2}, "schema 2"),
        ({"how": "quickly"}, "how: expected one of side-by-side, drain"),
        ({"files": {"../x": "y"}}, "files: only texts of config.pbtxt and rendered.json are taken"),
        ({"files": {"config.pbtxt": 1}}, "files: only texts"),
        ({"id": "another"}, "id: 'another' in a file called 0123456789ab.json"),
        ({"more": 1}, "more: unknown key"),
    ],
)
def test_what_is_no_order_is_refused_by_name(run_dir: Path, change: dict[str, Any], text: str) -> None:
    path = order().write(run_dir)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ContractError) as caught:
        SwapOrder.read(path)
    assert text in str(caught.value)


def test_results_are_there_or_not(run_dir: Path) -> None:
    assert OrderResult.read(run_dir, ID) is None
    result = OrderResult(id=ID, state="running", text="loading", model="alpha")
    result.write(run_dir)
    assert OrderResult.read(run_dir, ID) == result
    assert read_results(run_dir) == [result]
    assert pending_orders(run_dir) == []
    assert not result.is_final


def test_a_call_in_the_background_is_unknown_until_it_returns() -> None:
    import threading

    gate = threading.Event()

    def act() -> str | None:
        gate.wait(10)
        raise RuntimeError("no such server")

    answer = in_background(act)
    assert answer() == ""
    gate.set()
    for _ in range(1000):
        if answer() != "":
            break
        gate.wait(0.001)
        threading.Event().wait(0.005)
    assert answer() == "RuntimeError: no such server"


class Desk:
    """The orders of a launch that was prepared but never started; loading takes for ever."""

    def __init__(self, world: World) -> None:
        root = world.root
        (root / "bundles" / "new").mkdir(parents=True)
        (root / "bundles" / "new" / "bundle.json").touch()
        (root / "bundles" / "old").mkdir()
        (root / "bundles" / "old" / "bundle.json").touch()
        self.config = root / "repo" / "alpha" / "config.pbtxt"
        self.old, self.new = str(root / "bundles" / "old"), str(root / "bundles" / "new")
        plain = prepare(world.options(), world.env, "0badcafe")
        self.config.write_text(
            f'backend: "seekserve" parameters {{ key: "bundle_dir" value {{ string_value: "{self.old}" }} }}'
        )
        model = ServedModel(
            name="alpha", backend="seekserve", folder=self.config.parent, bundle_dir=Path(self.old), policy_file=None
        )
        self.prepared: Prepared = dataclasses.replace(plain, models=(model,), run_dir=root / "run")
        (self.prepared.run_dir / ORDERS_FOLDER).mkdir(parents=True)
        self.said: list[str] = []
        self.orders = self._orders(self.prepared)

    def _orders(self, prepared: Prepared) -> LaunchOrders:
        hands = ServerHands(
            load=lambda _model, _timeout_s: lambda: "",
            probe=lambda _model: lambda: "",
            beats=list,
            run_dir=prepared.run_dir,
        )
        return LaunchOrders(prepared, lambda kind, _text: self.said.append(kind), hands=hands)

    def refuses(self, wished: SwapOrder) -> str:
        wished.write(self.prepared.run_dir)
        self.orders.look(1.0)
        result = OrderResult.read(self.prepared.run_dir, wished.id)
        assert result is not None
        assert result.state == "refused"
        assert pending_orders(self.prepared.run_dir) == []
        return result.text

    def order(self, **changes: Any) -> SwapOrder:
        return order(**{"old_bundle_dir": self.old, "bundle_dir": self.new, **changes})


def test_an_order_is_taken_and_a_second_one_refused_until_its_end(world: World) -> None:
    desk = Desk(world)
    before = desk.config.read_text()
    desk.order().write(desk.prepared.run_dir)
    desk.orders.look(1.0)
    assert desk.config.read_text() == "text"
    assert "is under way; wait for its end" in desk.refuses(desk.order(id="ba9876543210"))
    desk.orders.interrupt("the launch stopped during the swap")
    assert desk.config.read_text() == before
    result = OrderResult.read(desk.prepared.run_dir, ID)
    assert result is not None
    assert (result.state, "the launch stopped" in result.text) == ("failed", True)
    assert desk.said == ["swapping", "warning", "warning"]
    desk.order(id="aaaaaaaaaaaa").write(desk.prepared.run_dir)
    desk.orders.look(2.0)
    assert [each.state for each in read_results(desk.prepared.run_dir)] == ["failed", "running", "refused"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": "beta"}, "serves no model 'beta' of ours, but alpha"),
        ({"old_bundle_dir": "/elsewhere"}, "is rendered for"),
        ({"bundle_dir": "/nowhere"}, "/nowhere holds no bundle.json"),
    ],
)
def test_an_order_for_another_state_changes_nothing(world: World, changes: dict[str, Any], text: str) -> None:
    desk = Desk(world)
    before = desk.config.read_text()
    assert text in desk.refuses(desk.order(**changes))
    assert desk.config.read_text() == before


def test_a_group_of_ranks_is_not_swapped(world: World) -> None:
    desk = Desk(world)
    plan = dataclasses.replace(desk.prepared.plan, kind="leader", launcher="mpirun", world_size=2)
    desk.orders = desk._orders(dataclasses.replace(desk.prepared, plan=plan))
    assert "cannot be swapped together" in desk.refuses(desk.order())


def test_a_running_launch_answers_orders_and_shows_what_goes_on(world: World) -> None:
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        run_dir = launch.prepared.run_dir
        assert stat.S_IMODE((run_dir / ORDERS_FOLDER).stat().st_mode) == 0o700
        OrderResult(id=ID, state="running", text="loading", model="alpha", how="drain", bundle_dir="/new").write(
            run_dir
        )
        status = status_of_record(launch.record_path)
        assert status.swap == "model alpha, drain, to /new: loading"
        assert f"  swap     {status.swap}" in status_lines(status)
        order().write(run_dir)
        scene.on["warning"] = lambda: os.kill(os.getpid(), 15)
        launch.supervise()
        result = OrderResult.read(run_dir, ID)
        assert result is not None
        assert (result.state, "no model 'alpha' of ours" in result.text) == ("refused", True)
    assert scene.left_behind() == []
