"""A leader plan under srun (a stand-in): scripts of the run folder, ranks found by what they wrote, one end for all."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
from launch_world import Scene, World

from seekserve.errors import StartFailed
from seekserve.server import Launch


@pytest.fixture
def scene(world: World) -> Scene:
    engine = world.root / "engine"
    engine.mkdir()
    (engine / "config.json").write_text(json.dumps({"pretrained_config": {"mapping": {"tp_size": 2, "pp_size": 1}}}))
    model = world.root / "repo" / "tensorrt_llm"
    (model / "1").mkdir(parents=True)
    parameter = f'parameters {{ key: "gpt_model_path" value {{ string_value: "{engine}" }} }}\n'
    (model / "config.pbtxt").write_text(f'backend: "tensorrtllm"\n{parameter}')
    programs = world.root / "programs"
    programs.mkdir()
    fake = Path(__file__).with_name("fake_srun.py")
    (programs / "srun").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(fake))} "$@"\n'
    )
    (programs / "srun").chmod(0o755)
    scene = Scene(world, launcher="srun")
    env = {**world.env, "PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "1"}
    scene.launch = Launch(scene.launch._options, say=scene.hear, env=env)
    return scene


def until_all_can_be_stopped(launch: Launch) -> dict[str, int]:
    """Readiness is rank 0's word: on a busy machine the others may still be starting, and die of a polite SIGTERM."""
    members: dict[str, int] = launch._run._process.members()  # type: ignore[union-attr]
    for pid in members.values():
        while not int(re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[0], 16) >> 14 & 1:
            time.sleep(0.01)
    return members


def test_ranks_are_started_watched_and_stopped_by_what_their_script_wrote(scene: Scene) -> None:
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        script = launch.prepared.run_dir / "rank.sh"
        assert script.stat().st_mode & 0o777 == 0o700, "it holds the keys of the launch"
        members = until_all_can_be_stopped(launch)
        assert set(members) == {"rank 0", "rank 1"}
        assert launch.trouble() is None
        assert launch.stop() == 0
    assert scene.left_behind() == []


def test_a_killed_rank_is_named_and_all_are_started_again(scene: Scene) -> None:
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        victim = launch._run._process.members()["rank 1"]  # type: ignore[union-attr]
        os.kill(victim, signal.SIGKILL)
        while (trouble := launch.trouble()) is None:
            pass
        assert f"rank 1 (pid {victim}) is dead" in trouble
        launch.recover(trouble)
        assert until_all_can_be_stopped(launch)["rank 1"] != victim
        assert launch.stop() == 0
    assert scene.left_behind() == []


def test_a_rank_that_cannot_start_ends_all_with_its_status(scene: Scene) -> None:
    scene.world.plan(ranks={"1": {"exit_at_start": 7}, "0": {"load_s": 20.0}})
    with pytest.raises(StartFailed, match="rank 1 ended with exit status 7"):
        scene.launch.run()
    assert scene.left_behind() == []
