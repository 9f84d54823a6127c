"""A swap step by step, with a server made of functions: whatever happens, files and server agree in the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seekserve.server.heartbeat import BeatSwap, Heartbeat
from seekserve.server.orders import OrderResult, SwapOrder
from seekserve.server.swap_run import Answer, ServerHands, SwapRun

OLD, NEW = "/bundles/old", "/bundles/new"


def beat(pid: int, bundle_dir: str | None = OLD, *, open_requests: int = 0, swap: BeatSwap | None = None) -> Heartbeat:
    return Heartbeat(
        model="m",
        pid=pid,
        time_s=0.0,
        engine_loop_age_s=0.0,
        open_requests=open_requests,
        bundle_dir=bundle_dir,
        swap=swap,
    )


def said(id: str, state: str, text: str = "", failed: int = 0) -> BeatSwap:
    return BeatSwap(id=id, state=state, text=text, failed_requests=failed, load_timeout_s=60.0)


@dataclass
class World:
    """The model's folder, the run folder, and answers given one after the other ("": not yet)."""

    root: Path
    loads: list[str | None] = field(default_factory=lambda: [None])
    probes: list[str | None] = field(default_factory=lambda: [None])
    beats: list[Heartbeat] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    """Which bundle the files named at each load."""

    def __post_init__(self) -> None:
        self.folder, self.run_dir = self.root / "repo" / "m", self.root / "run"
        for folder in (self.folder, self.run_dir):
            folder.mkdir(parents=True)
        (self.folder / "config.pbtxt").write_text(OLD)
        (self.folder / "rendered.json").write_text("old manifest")

    @property
    def named(self) -> str:
        assert sorted(path.name for path in self.folder.iterdir()) == ["config.pbtxt", "rendered.json"]
        manifest = (self.folder / "rendered.json").read_text()
        text = (self.folder / "config.pbtxt").read_text()
        assert manifest == ("old manifest" if text == OLD else "new manifest")
        return text

    @property
    def told(self) -> tuple[str, str] | None:
        path = self.run_dir / "swap-m.json"
        if not path.exists():
            return None
        order = json.loads(path.read_text())
        return order["id"], order["bundle_dir"]

    def start(self, how: str, drain_timeout_s: float = 300.0) -> SwapRun:
        order = SwapOrder(
            id="0123456789ab",
            model="m",
            old_bundle_dir=OLD,
            bundle_dir=NEW,
            how=how,
            files={"config.pbtxt": NEW, "rendered.json": "new manifest"},
            drain_timeout_s=drain_timeout_s,
            load_timeout_s=60.0,
        )
        hands = ServerHands(load=self.load, probe=self.probe, beats=self.current, run_dir=self.run_dir)
        return SwapRun(order, self.folder, hands, now_s=0.0)

    def current(self) -> Sequence[Heartbeat]:
        return self.beats

    def load(self, model: str, timeout_s: float) -> Answer:
        assert (model, timeout_s) == ("m", 60.0)
        self.loaded.append(self.named)
        return _one_after_the_other(self.loads)

    def probe(self, _model: str) -> Answer:
        return _one_after_the_other(self.probes)

    def everyone(self, *states: tuple[str, str], bundle_dir: str = OLD) -> None:
        """One instance for each (order id, state)."""
        self.beats = [beat(pid, bundle_dir, swap=said(*state)) for pid, state in enumerate(states, start=1)]


def _one_after_the_other(answers: list[str | None]) -> Callable[[], str | None]:
    def answer() -> str | None:
        if answers and answers[0] == "":
            answers.pop(0)
            return ""
        return answers.pop(0) if answers else None

    return answer


def finish(run: SwapRun, now_s: float = 1.0) -> OrderResult:
    for step in range(100):
        if run.advance(now_s + step).is_final:
            return run.result
    raise AssertionError(run.result)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_side_by_side_changes_the_files_before_the_load_and_proves_it(world: World) -> None:
    world.loads, world.probes = ["", None], ["", None]
    run = world.start("side-by-side")
    assert (world.named, run.result.state) == (OLD, "running")
    assert run.advance(1.0).state == "running"
    assert world.named == NEW
    result = finish(run)
    assert (result.state, world.named, world.loaded) == ("done", NEW, [NEW])


def test_a_load_that_fails_puts_the_old_files_back_with_triton_s_reason(world: World) -> None:
    world.loads = ["out of memory"]
    result = finish(world.start("side-by-side"))
    assert (result.state, world.named, world.loaded) == ("failed", OLD, [NEW])
    assert "did not load (out of memory); the old variant serves on" in result.text


def test_a_new_variant_that_cannot_generate_is_replaced_by_the_old_one(world: World) -> None:
    world.probes = ["no final response"]
    result = finish(world.start("side-by-side"))
    assert (result.state, world.named, world.loaded) == ("failed", OLD, [NEW, OLD])
    assert "cannot generate (no final response); the old one serves again" in result.text


def test_old_instances_are_waited_for_and_asked_to_go_once_they_are_idle(world: World) -> None:
    world.beats = [beat(7, open_requests=2)]
    run = world.start("side-by-side")
    assert run.advance(1.0).state == "running"
    world.beats = [beat(7, open_requests=2), beat(8, NEW, open_requests=5)]
    assert run.advance(100.0).text == "the new variant serves; the old one has 2 requests open"
    world.beats[0] = beat(7)
    run.advance(101.0)
    run.advance(104.5)
    assert not (world.run_dir / "retire-7").exists()
    run.advance(105.5)
    assert (world.run_dir / "retire-7").exists()
    assert not (world.run_dir / "retire-8").exists()
    world.beats = [beat(8, NEW)]
    assert run.advance(106.0).state == "done"
    assert list(world.run_dir.iterdir()) == []


def test_old_requests_do_not_go_on_for_ever(world: World) -> None:
    world.beats = [beat(7, open_requests=2)]
    run = world.start("side-by-side", drain_timeout_s=10.0)
    run.advance(1.0)
    run.advance(10.0)
    assert not (world.run_dir / "retire-7").exists()
    run.advance(11.0)
    assert (world.run_dir / "retire-7").exists()
    assert run.advance(71.0).state == "done"
    assert run.result.failed_requests == 2


def test_drain_tells_every_instance_and_changes_the_files_last(world: World) -> None:
    world.beats = [beat(1), beat(2)]
    run = world.start("drain")
    run.advance(1.0)
    assert world.told == (run.result.id, NEW)
    world.everyone((run.result.id, "draining"), (run.result.id, "done"))
    assert run.advance(2.0).text == "draining: 0 requests open"
    assert world.named == OLD
    world.beats = [beat(pid, NEW, swap=said(run.result.id, "done", failed=pid)) for pid in (1, 2)]
    result = finish(run)
    assert (result.state, result.failed_requests) == ("done", 3)
    assert (world.named, world.told, world.loaded) == (NEW, None, [])


def test_one_instance_that_fails_takes_the_others_back(world: World) -> None:
    world.beats = [beat(1), beat(2)]
    run = world.start("drain")
    run.advance(1.0)
    world.beats = [
        beat(1, NEW, swap=said(run.result.id, "done")),
        beat(2, swap=said(run.result.id, "failed", "broken")),
    ]
    run.advance(2.0)
    back = f"{run.result.id}-back"
    assert world.told == (back, OLD)
    assert run.advance(3.0).state == "running"
    world.everyone((back, "done"), (back, "done"))
    result = finish(run)
    assert (result.state, result.text, world.named) == ("failed", "broken; the old one serves again", OLD)


def test_a_drained_variant_that_cannot_generate_is_taken_back(world: World) -> None:
    world.beats = [beat(1)]
    world.probes = ["FAILED: no idea"]
    run = world.start("drain")
    run.advance(1.0)
    world.everyone((run.result.id, "done"), bundle_dir=NEW)
    run.advance(2.0)
    assert world.told == (f"{run.result.id}-back", OLD)
    world.everyone((f"{run.result.id}-back", "done"))
    assert finish(run).state == "failed"
    assert world.named == OLD


def test_a_repository_that_cannot_be_written_takes_the_server_back(world: World) -> None:
    world.beats = [beat(1)]
    run = world.start("drain")
    run.advance(1.0)
    moved = world.folder.rename(world.root / "elsewhere")
    world.everyone((run.result.id, "done"), bundle_dir=NEW)
    run.advance(2.0)
    assert world.told == (f"{run.result.id}-back", OLD)
    moved.rename(world.folder)
    world.everyone((f"{run.result.id}-back", "done"))
    result = finish(run)
    assert (result.state, world.named) == ("failed", OLD)
    assert "cannot be changed" in result.text


def test_a_backend_that_knows_no_swaps_is_left_alone(world: World) -> None:
    world.beats = [beat(1, None)]
    result = finish(world.start("drain"))
    assert (result.state, world.told, world.named) == ("refused", None, OLD)
    assert "install-backend" in result.text


@pytest.mark.parametrize(("how", "looks"), [("side-by-side", 1), ("drain", 1), ("drain", 0)])
def test_abandoned_before_the_proof_the_old_variant_is_named(world: World, how: str, looks: int) -> None:
    world.loads, world.beats = ["", "", ""], [beat(1)]
    run = world.start(how)
    for look in range(looks):
        run.advance(1.0 + look)
    result = run.abandon("the server died")
    assert (result.state, world.named, world.told) == ("failed", OLD, None)
    assert "the server died" in result.text


def test_abandoned_after_the_proof_the_new_variant_stays(world: World) -> None:
    world.beats = [beat(7, open_requests=2)]
    run = world.start("side-by-side")
    run.advance(1.0)
    assert run.advance(2.0).state == "running"
    result = run.abandon("the launch stopped")
    assert (result.state, world.named) == ("done", NEW)
