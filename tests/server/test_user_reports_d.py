"""What people reported of launches on several GPUs and nodes, each trigger a test; the comment names the public thread.

Where a rule was tested before, the table at the end says where.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from launch_world import Scene, World
from planning import choice, leader, plan, problems, spawning

from seekserve.errors import InputError
from seekserve.server.httpget import call
from seekserve.server.options import LaunchOptions
from seekserve.server.plan_facts import ready_timeout
from seekserve.server.plans.combinations import refusal
from seekserve.server.ports import Ports, resolve_ports

SHARED = Path("/shared")
SIXTEEN = leader(tp=8, pp=2)


# tensorrtllm_backend #355, TensorRT-LLM #8961: two nodes of eight GPUs that never start together
def test_one_task_a_node_does_not_carry_eight_ranks_a_node() -> None:
    found = problems(SIXTEEN, hosts="a:1,b:1", shared_dir=SHARED)
    assert found == ["hosts a:1,b:1 have 2 slots, 16 ranks need 16"]
    assert "--ntasks-per-node=8" in plan(SIXTEEN, launcher="srun", shared_dir=SHARED).argv


@pytest.mark.parametrize(
    ("wishes", "env", "what"),
    [
        ({"hosts": "localhost:8,b:8"}, {}, "host localhost is the loopback"),
        ({"hosts": "a:8,127.0.1.1:8"}, {}, "host 127.0.1.1 is the loopback"),
        ({"hosts": "a:8,b:8", "mpi_interface": "lo"}, {}, "--mpi-interface lo is the loopback"),
        ({"hosts": "a:8,b:8"}, {"MASTER_ADDR": "127.0.0.1"}, "MASTER_ADDR=127.0.0.1 is the loopback"),
        ({"hosts": "a:8,b:8"}, {"OMPI_MCA_btl_tcp_if_include": "lo"}, "OMPI_MCA_btl_tcp_if_include=lo is the loopback"),
        ({"hosts": "a:8,b:8"}, {"NCCL_SOCKET_IFNAME": "lo"}, "NCCL_SOCKET_IFNAME=lo is the loopback"),
        ({"launcher": "srun"}, {"MASTER_ADDR": "localhost"}, "MASTER_ADDR=localhost is the loopback"),
    ],
)
def test_a_loopback_rendezvous_of_several_nodes_is_refused(
    wishes: dict[str, str], env: dict[str, str], what: str
) -> None:
    (problem,) = problems(SIXTEEN, env=env, shared_dir=SHARED, **wishes)
    assert problem.startswith(what)
    assert "the plan spans 2 nodes" in problem


def test_a_model_path_per_node_is_ruled_out_in_words_and_scripts_lie_in_a_common_folder() -> None:
    assert any("same paths on every node" in why for why in choice(SIXTEEN, hosts="a:8,b:8", shared_dir=SHARED).why)
    (problem,) = problems(SIXTEEN, hosts="a:8,b:8")
    assert "--shared-dir" in problem


# tensorrtllm_backend #243, #455: every rank opens the same port
def test_of_sixteen_ranks_one_listens() -> None:
    servers = plan(SIXTEEN, hosts="a:8,b:8", shared_dir=SHARED).servers
    assert [rank.number for rank in servers if rank.listens] == [0]
    assert [rank.number for rank in servers if any("-port=" in word for word in rank.argv)] == [0]
    assert len({rank.shm_prefix for rank in servers}) == 16


def test_ports_that_are_alike_or_taken_are_said_before_anything_starts() -> None:
    _, found = resolve_ports("127.0.0.1", Ports(http=4711, grpc=4711, metrics=0))
    assert found[0].startswith("--http-port and --grpc-port are both 4711")


# triton server #7230, ai-dynamo/dynamo #3780, TensorRT-LLM #18663: health says 200 over a dead engine
def test_a_server_whose_health_is_green_over_a_dead_stub_is_in_trouble(world: World) -> None:
    scene = Scene(world)
    with scene.launch as launch:
        launch.start()
        launch.wait_ready()
        while not scene.beats():
            assert launch.trouble() is None
        os.kill(scene.beats()[0].pid, 9)
        while (trouble := launch.trouble()) is None:
            pass
        health = call(f"{launch.http_url}/v2/health/ready")
        assert health is not None
        assert health[0] == 200
        assert "is dead" in trouble


# triton server #7014: start-up time of a large model is minutes, not a default of seconds
def test_the_start_may_take_what_the_weights_need_and_a_flag_wins() -> None:
    needs = [spawning(start_timeout_s=2400.0), leader(start_timeout_s=700.0)]
    assert ready_timeout(None, needs) == (2400.0, "sized from the weights of model 'v3'")
    assert ready_timeout(90.0, needs) == (90.0, "--ready-timeout-s")
    assert ready_timeout(None, []) == (600.0, "the default")
    assert LaunchOptions(repository=Path("r"), backend_dir=Path("b")).ready_timeout_s is None


# tensorrtllm_backend #448, #166, TensorRT-LLM #1608 and PR 3797: [[0..3], [4..7]], and which process mode
def test_two_instances_of_four_gpus_are_one_process_that_spawns_and_says_so() -> None:
    made = plan(leader(tp=4, instances=2, gpu_ids=((0, 1, 2, 3), (4, 5, 6, 7))))
    assert (made.kind, made.world_size, made.launcher) == ("orchestrator", 8, None)
    assert "spawns the ranks of each" in made.why[0]
    (problem,) = problems(leader(tp=4, instances=2), ranks="mpi")
    assert "--ranks orchestrator" in problem


def test_models_of_unequal_ranks_go_together_on_one_node_only() -> None:
    pair = (leader(tp=2, model="small"), leader(tp=4, model="large"))
    assert choice(*pair).kind == "orchestrator"
    found = problems(*pair, hosts="a:4,b:4", shared_dir=SHARED)
    assert any("'small', 'large'" in problem for problem in found)


# triton server PR 7715: the OpenAI frontend cannot be rank 0 of a leader plan
def test_the_openai_frontend_over_several_leader_ranks_is_refused_with_the_fix() -> None:
    (problem,) = problems(leader(tp=2), frontend=True)
    assert "--tritonserver is Triton's OpenAI frontend" in problem
    assert "--ranks orchestrator" in problem
    assert problems(leader(tp=1), frontend=True) == []
    assert refusal("orchestrator", "openai-frontend") is None
    assert any("OpenAI frontend" in why for why in choice(leader(tp=2)).why)


def test_a_frontend_named_as_the_server_is_refused_before_it_starts(world: World) -> None:
    frontend = world.root / "openai" / "openai_frontend" / "main.py"
    frontend.parent.mkdir(parents=True)
    frontend.touch(mode=0o755)
    with pytest.raises(InputError, match="is Triton's OpenAI frontend; name the tritonserver binary"):
        Scene(world, tritonserver=frontend).launch.run()


# TensorRT-LLM #9680, tensorrtllm_backend #377: a start with TP > 1 that hangs without a word
def test_a_c_engine_of_several_ranks_is_never_started_alone() -> None:
    (problem,) = problems(leader(tp=2), ranks="single")
    assert "wait for the others for ever" in problem


def test_mpi_on_the_loopback_is_an_option_with_its_reason_on_one_node() -> None:
    made = plan(leader(tp=2), mpi_interface="lo")
    assert made.env["OMPI_MCA_btl_tcp_if_include"] == "lo"
    assert any("cures start-ups that hang" in why for why in made.why)


ELSEWHERE = {
    "D2 bounded start with every rank's state": (
        "mpi/test_group.py",
        "test_ranks_that_never_become_ready_are_told_one_by_one_with_the_shared_memory",
    ),
    "D3 taken ports": ("server/test_ports.py", "test_a_taken_port_is_named_with_its_setting"),
    "D4 foreground, signals, status": (
        "cli/test_launch.py",
        "test_in_the_foreground_a_signal_stops_it_cleanly_with_0",
    ),
    "D4 launcher killed": ("cli/test_launch.py", "test_a_launch_that_is_killed_outright_is_cleaned_up_after"),
    "D4 detach writes a pid file": ("cli/test_launch.py", "test_detach_status_and_stop"),
    "D5 a dead rank ends the group": (
        "mpi/test_group.py",
        "test_a_killed_rank_ends_the_group_in_time_and_it_is_restarted",
    ),
    "D5 a stuck engine": ("server/test_launch.py", "test_an_engine_loop_that_stands_still_is_noticed"),
    "D6 ready by generation": ("mpi/test_real.py", "test_ready_by_generation_and_a_clean_stop"),
    "D7 GPU groups": ("server/plans/test_read.py", "test_gpus_of_instances_are_whole_groups_that_share_none"),
    "D9 peer access": ("server/test_rank_log.py", "test_pairs_of_gpus_that_cannot_reach_each_other_are_named"),
}


@pytest.mark.parametrize("rule", sorted(ELSEWHERE))
def test_what_is_tested_elsewhere_is_still_there(rule: str) -> None:
    file, name = ELSEWHERE[rule]
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{rule}: {file} has no {name}"
