"""Launches whose record, log, listener or server fails them: nothing is left, and the code says how the stop went."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch_world import Scene, World

from seekserve.errors import InputError, ServerError
from seekserve.server import Event, Launch


@pytest.mark.parametrize("flag", ["pid_file", "log_file"])
def test_a_record_or_log_that_cannot_be_written_is_found_out_before_anything_starts(world: World, flag: str) -> None:
    scene = Scene(world, **{flag: Path("/proc/nope/x.json")})
    with pytest.raises(InputError, match=f"cannot launch: --{flag.replace('_', '-')} /proc/nope/x.json cannot be"):
        scene.launch.run()
    assert scene.events == []
    assert not (world.root / "state").exists()


def test_a_state_folder_that_cannot_be_written_is_found_out_too(world: World) -> None:
    env = {**world.env, "XDG_STATE_HOME": "/proc/nope"}
    with pytest.raises(InputError, match=r"the launch record \(in XDG_STATE_HOME\) /proc/nope/seekserve/"):
        Launch(world.options(), env=env).run()


def test_a_record_that_can_no_longer_be_written_ends_neither_the_server_nor_its_orderly_stop(world: World) -> None:
    folder = world.root / "mine"
    scene = Scene(world, pid_file=folder / "pid", log_file=world.root / "log")
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        (folder / "pid").unlink()
        folder.rmdir()
        folder.write_text("in the way")
        launch.recover("for a test")
        assert launch.stop() == 0
    assert scene.kinds.count("ready") == 2
    warned = {event.text for event in scene.events if event.kind == "warning"}
    assert all(text.startswith("the launch record or the log could not be changed: /") for text in warned)
    assert warned
    assert "goodbye" in (world.root / "log").read_text()
    assert scene.left_behind() == []
    assert list((world.root / "state" / "seekserve" / "launches").iterdir()) == []


def test_a_launch_whose_record_cannot_be_written_at_all_is_stopped_and_leaves_nothing(world: World) -> None:
    scene = Scene(world, pid_file=world.root / "mine" / "pid")
    scene.on["starting"] = lambda: (world.root / "mine" / "pid").unlink()
    scene.on["loading"] = lambda: (
        (world.root / "mine").rmdir(),
        (world.root / "mine").write_text("in the way"),
    )
    with pytest.raises(OSError, match="mine"):
        scene.launch.run()
    assert scene.left_behind() == []
    assert list((world.root / "state" / "seekserve" / "launches").glob("*.json")) == []


def test_a_listener_that_has_gone_away_breaks_nothing_off(world: World) -> None:
    def gone(_event: Event) -> None:
        raise BrokenPipeError

    launch = Launch(world.options(), say=gone, env=world.env)
    with launch:
        launch.start()
        launch.wait_ready()
        assert launch.stop() == 0
    assert world.left_behind(launch.id) == []


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()])
def test_a_stop_that_was_not_clean_is_an_error_for_whoever_did_not_ask(
    world: World, error: BaseException | None
) -> None:
    world.plan(exit_status=3)
    scene = Scene(world)
    with pytest.raises(ServerError, match="did not stop cleanly"), scene.launch as launch:  # noqa: PT012
        launch.start()
        launch.wait_ready()
        if error is not None:
            raise error
    assert scene.left_behind() == []


def test_an_error_of_ones_own_is_not_hidden_by_a_stop_that_was_not_clean(world: World) -> None:
    world.plan(exit_status=3)
    with pytest.raises(RuntimeError, match="own"), Scene(world).launch as launch:  # noqa: PT012
        launch.start()
        launch.wait_ready()
        raise RuntimeError("own")
