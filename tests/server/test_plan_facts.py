from __future__ import annotations

import socket
from pathlib import Path

import pytest
from launch_world import Scene, World
from planning import wish

from seekserve.errors import InputError
from seekserve.server.options import LaunchOptions
from seekserve.server.plan_facts import is_openai_frontend, machine_facts, plan_wish, worker_python_problem


def _options(**changes: object) -> LaunchOptions:
    return LaunchOptions(repository=Path("r"), backend_dir=Path("b"), **changes)  # type: ignore[arg-type]


def test_hosts_come_from_a_list_or_a_file_and_not_from_both(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2\n")
    from_file, problems = plan_wish(_options(hostfile=tmp_path / "hosts"))
    assert (problems, from_file.hosts) == ([], plan_wish(_options(hosts="a:2"))[0].hosts)
    assert plan_wish(_options(hosts="a:2", hostfile=tmp_path / "hosts"))[1] == [
        "--hosts and --hostfile were both given; one of them says where ranks run"
    ]
    assert "host a has no slots" in plan_wish(_options(hosts="a"))[1][0]


def test_this_machine_is_known_by_its_names_and_programs_by_path(tmp_path: Path) -> None:
    (tmp_path / "mpirun").touch(mode=0o755)
    (tmp_path / "srun").touch(mode=0o644)
    asked = wish(f"{socket.gethostname()}:1,192.0.2.1:1")
    facts = machine_facts({"PATH": str(tmp_path)}, asked)
    assert facts.own_hosts == {"localhost", socket.gethostname()}
    assert facts.programs == {"mpirun": str(tmp_path / "mpirun")}


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/opt/tritonserver/python/openai/openai_frontend/main.py", True),
        ("/x/my_openai.py", True),
        ("/opt/tritonserver/bin/tritonserver", False),
        ("/openai/bin/tritonserver", False),
    ],
)
def test_the_openai_frontend_is_known_by_its_path(path: str, is_one: bool) -> None:
    assert is_openai_frontend(Path(path)) is is_one


@pytest.mark.parametrize(
    ("stub", "python", "is_fine"),
    [("3.12", "python3.12", True), ("3.12", "python3.10", False), (None, "python3.10", True), ("3.12", "pypy", True)],
)
def test_workers_must_run_the_python_of_the_stub(tmp_path: Path, stub: str | None, python: str, is_fine: bool) -> None:
    (tmp_path / python).touch(mode=0o755)
    (tmp_path / "python3").symlink_to(tmp_path / python)
    problem = worker_python_problem({"PATH": str(tmp_path)}, stub)
    assert (problem is None) == is_fine
    assert problem is None or "the Python stub is of Python 3.12" in problem


def test_without_python3_on_the_path_nothing_is_claimed(tmp_path: Path) -> None:
    assert worker_python_problem({"PATH": str(tmp_path)}, "3.12") is None


def test_wishes_that_fit_no_repository_are_told_with_all_other_problems(world: World) -> None:
    scene = Scene(world, world_size=4, mpi_interface="lo", backend_dir=world.root / "none")
    with pytest.raises(InputError) as caught:
        scene.launch.run()
    text = str(caught.value)
    assert "--world-size 4: no engine of several ranks, so 1, you asked for 4" in text
    assert "--mpi-interface lo: the plan has one rank" in text
    assert "--backend-dir" in text
    assert not (world.root / "state").exists()


def test_a_common_folder_takes_the_run_folder(world: World) -> None:
    (world.root / "shared").mkdir()
    scene = Scene(world, shared_dir=world.root / "shared")
    with scene.launch as launch:
        launch.start()
        assert launch.prepared.run_dir.parent == world.root / "shared"
        launch.wait_ready()
        assert launch.stop() == 0
    assert list((world.root / "shared").iterdir()) == []
