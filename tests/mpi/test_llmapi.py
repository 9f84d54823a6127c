"""`trtllm-llmapi-launch` under the real mpirun, as a script that does what the public one is documented to do.

It splits its command at blanks, hides MPI's variables from it, runs it in the background and outlives it.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from launch_world import Scene
from mpi_world import MpiWorld, environment_of

from seekserve.errors import ServerError
from seekserve.server import Launch
from seekserve.server.plans.make import LLMAPI_LAUNCH

LAUNCH = """\
#!/bin/bash
rank=$OMPI_COMM_WORLD_RANK
trap 'exit 0' TERM
if [ "$rank" = 0 ]; then
  names=$(env | sed -n 's/^\\(OMPI_[A-Za-z0-9_]*\\|PMIX_[A-Za-z0-9_]*\\)=.*/\\1/p')
  hidden=
  for name in $names; do hidden="$hidden -u $name"; done
  env $hidden $@ &
fi
while :; do sleep 0.1; done
"""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    world = MpiWorld.build(tmp_path)
    model = tmp_path / "repo" / "tensorrt_llm"
    (model / "config.pbtxt").write_text('backend: "python"\n')
    (model / "1" / "model.py").touch()
    (model / "1" / "model.yaml").write_text("model: x\ntensor_parallel_size: 2\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / LLMAPI_LAUNCH).write_text(LAUNCH)
    (programs / LLMAPI_LAUNCH).chmod(0o755)
    scene = Scene(world, ranks="mpi", max_restarts=1)
    env = {**world.env, "PATH": f"{programs}:{os.environ['PATH']}"}
    scene.launch = Launch(scene.launch._options, say=scene.hear, env=env)
    return scene


def _server(launch: Launch) -> int:
    return int((launch.prepared.run_dir / "rank-0.pid").read_text().split()[1])


def test_one_server_beside_two_carriers_is_ready_and_stops_cleanly(scene: Scene) -> None:
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.prepared.plan.summary.startswith("llmapi by mpirun, tp 2 x pp 1 = 2 of model 'tensorrt_llm'")
        members = launch._run._process.members()  # type: ignore[union-attr]
        assert set(members) == {"rank 0", "worker rank 0", "worker rank 1"}
        assert "OMPI_COMM_WORLD_RANK" not in environment_of(_server(launch))
        assert launch.trouble() is None
        assert launch.stop() == 0
    assert scene.left_behind() == []


@pytest.mark.parametrize("victim", ["rank 0", "worker rank 1"])
def test_a_server_that_dies_under_its_launcher_is_noticed_and_all_is_started_again(scene: Scene, victim: str) -> None:
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        members = launch._run._process.members()  # type: ignore[union-attr]
        os.kill(members[victim], signal.SIGKILL)
        deadline_s = time.monotonic() + 20
        while (trouble := launch.trouble()) is None:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert f"{victim} (pid {members[victim]}) is dead" in trouble
        if victim == "rank 0":
            assert "its tritonserver ended with killed by SIGKILL" in trouble
        launch.recover(trouble)
        assert launch.stop() == 0
    assert scene.left_behind() == []


def test_the_servers_own_status_counts_though_the_launcher_ends_with_0(scene: Scene) -> None:
    scene.world.plan(exit_status=3)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        assert launch.stop() == 4
    assert "exit status 3" in scene.events[-1].text


def test_a_server_that_never_starts_does_not_leave_the_launcher_waiting(scene: Scene) -> None:
    scene.world.plan(exit_at_start=6)
    with pytest.raises(ServerError, match="its tritonserver ended with exit status 6"):
        scene.launch.run()
    assert scene.left_behind() == []
