"""What a choice becomes: argument lists, scripts, environment."""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from planning import MACHINE, leader, plan, spawning, with_programs

from seekserve.server.plans.scripts import rank_script, serve_script

SHARED = Path("/shared")


def segments(argv: tuple[str, ...]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for word in argv:
        if word == ":":
            found.append([])
        else:
            found[-1].append(word)
    return found


def test_one_process_is_tritonserver_itself() -> None:
    made = plan(spawning(tp=8))
    assert made.argv[0] == "/t/tritonserver"
    assert made.argv == made.servers[0].argv
    assert (made.files, made.blockers, made.is_group) == ({}, (), False)
    assert "spawns the 8 workers of 'v3' on this node itself" in made.why[0]


def test_every_rank_of_a_leader_plan_is_a_segment_of_its_own() -> None:
    made = plan(leader(tp=2))
    first, second = segments(made.argv)
    assert first[:5] == ["/usr/bin/mpirun", "--tag-output", "--bind-to", "none", "-n"]
    assert first[5:9] == ["1", "-H", "localhost:2", "/usr/bin/env"]
    assert second[:4] == ["-n", "1", "-H", "localhost:2"]
    assert {"--http-port=1", "--grpc-port=2", "--metrics-port=3"} <= set(first)
    assert {"--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"} <= set(second)
    assert not any("-port=" in word or "KEY" in word for word in second)
    assert [word for word in second if word.startswith("--load-model")] == ["--load-model=tensorrt_llm"]
    prefixes = [word.rpartition("=")[2] for each in (first, second) for word in each if "shm-region" in word]
    assert prefixes == ["seekserve_ab_r0_", "seekserve_ab_r1_"]


def test_mpirun_does_not_choose_the_python_of_the_ranks() -> None:
    for segment in segments(plan(leader(tp=2)).argv):
        assert segment[segment.index("/usr/bin/env") + 1] == "PATH=/py:/bin"


def test_root_alone_is_told_to_mpirun() -> None:
    assert "--allow-run-as-root" not in plan(leader()).argv
    assert "--allow-run-as-root" in plan(leader(), machine=dataclasses.replace(MACHINE, is_root=True)).argv


def test_ranks_of_several_nodes_name_their_host_and_what_reaches_it() -> None:
    made = plan(leader(tp=2, pp=2), hosts="a:2,b:2", shared_dir=SHARED)
    found = segments(made.argv)
    assert [segment[segment.index("-H") + 1] for segment in found] == ["a:2", "a:2", "b:2", "b:2"]
    for segment in found:
        names = [segment[n + 1] for n, word in enumerate(segment) if word == "-x"]
        assert names == ["NCCL_DEBUG", "SEEKSERVE_RUN_DIR"]
    assert [rank.host for rank in made.servers] == ["a", "a", "b", "b"]
    assert made.blockers == ()


def test_what_steers_pytorch_and_the_libraries_below_it_reaches_the_other_nodes() -> None:
    names = ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "PYTORCH_ALLOC_CONF", "TORCH_NCCL_BLOCKING_WAIT", "UCX_TLS")
    machine = dataclasses.replace(MACHINE, env={**MACHINE.env, **dict.fromkeys(names, "1"), "TORCHLIGHT": "1"})
    for segment in segments(plan(leader(), machine=machine, hosts="a:1,b:1", shared_dir=SHARED).argv):
        sent = [segment[n + 1] for n, word in enumerate(segment) if word == "-x"]
        assert sent == sorted([*names, "NCCL_DEBUG", "SEEKSERVE_RUN_DIR"])


def test_the_interface_is_set_for_every_rank_and_explained() -> None:
    made = plan(leader(), mpi_interface="lo")
    assert made.env["OMPI_MCA_btl_tcp_if_include"] == "lo"
    assert any("OMPI_MCA_btl_tcp_if_include" in sentence for sentence in made.why)


def test_llmapi_carries_workers_and_starts_one_server_by_a_script_without_blanks() -> None:
    made = plan(spawning(tp=8, pp=2), hosts="a:8,b:8", shared_dir=SHARED)
    (only,) = segments(made.argv)
    assert only[only.index("-n") + 1] == "16"
    assert only[only.index("-H") + 1] == "a:8,b:8"
    assert only[-2:] == ["/usr/bin/trtllm-llmapi-launch", "/tmp/seekserve-ab/serve.sh"]
    assert shlex.join(made.servers[0].argv) in made.files["serve.sh"]
    assert len(made.servers) == 1
    assert made.servers[0].listens


def test_a_run_folder_with_a_blank_would_be_split() -> None:
    made = plan(spawning(), ranks="mpi", run_dir=Path("/my shared/seekserve-ab"))
    assert any("splits at blanks" in blocker for blocker in made.blockers)


@pytest.mark.parametrize("need", [leader(tp=8, pp=2), spawning(tp=16)])
def test_srun_gets_nodes_tasks_and_one_command(need: object) -> None:
    made = plan(need, launcher="srun", shared_dir=SHARED)  # type: ignore[arg-type]
    assert list(made.argv[:7]) == [
        "/usr/bin/srun",
        "--nodes=2",
        "--ntasks=16",
        "--ntasks-per-node=8",
        "--mpi=pmix",
        "--kill-on-bad-exit=1",
        "--cpu-bind=none",
    ]
    assert made.argv[7] == "--label"
    assert made.argv[-1].startswith("/tmp/seekserve-ab/")
    assert made.blockers == ()


def test_shared_memory_is_removed_once_on_every_node_of_several() -> None:
    assert plan(leader(tp=2)).clean_argv == plan(leader(tp=2), launcher="srun").clean_argv == ()
    by_mpi = plan(leader(tp=2, pp=2), hosts="a:2,b:2", shared_dir=SHARED).clean_argv
    assert shlex.join(by_mpi).startswith("/usr/bin/mpirun --tag-output --bind-to none -n 2 -H a:1,b:1 /bin/sh -c")
    assert by_mpi[-1] == "seekserve_ab_"
    by_slurm = plan(leader(tp=16), launcher="srun", shared_dir=SHARED).clean_argv
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1"} <= set(by_slurm)


def test_an_orchestrator_is_one_process_that_is_told_so() -> None:
    made = plan(leader(tp=4, instances=2))
    assert made.env["TRTLLM_ORCHESTRATOR"] == made.env["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"] == "1"
    assert "--enable-peer-access=false" in made.argv
    assert not made.is_group


@pytest.mark.parametrize(
    ("programs", "env", "hosts", "wishes", "sentence"),
    [
        ((), {}, None, {}, "mpirun is not on PATH"),
        (("mpirun",), {}, None, {"ranks": "mpi"}, "trtllm-llmapi-launch is not on PATH"),
        (("mpirun",), {}, "b:2", {}, "rank 0 is to run on b, which is not this machine"),
        (("srun",), {}, None, {"launcher": "srun"}, "this is no Slurm job"),
        (("srun",), {"SLURM_JOB_ID": "1", "SLURM_NODEID": "1"}, None, {"launcher": "srun"}, "this is node 1"),
        (("srun",), {"SLURM_JOB_ID": "1"}, None, {"launcher": "srun", "wide": True}, "has 1 nodes, 16 ranks need 2"),
    ],
)
def test_what_this_machine_lacks_is_said_and_the_plan_is_made_all_the_same(
    programs: tuple[str, ...], env: dict[str, str], hosts: str | None, wishes: dict[str, object], sentence: str
) -> None:
    need = spawning() if wishes.get("ranks") == "mpi" else leader(tp=16 if wishes.pop("wide", False) else 2)
    machine = dataclasses.replace(with_programs(*programs), env=env)
    made = plan(need, machine=machine, hosts=hosts, shared_dir=SHARED, **wishes)
    assert any(sentence in blocker for blocker in made.blockers), made.blockers
    assert made.argv


def _start(script: Path, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sh", str(script)], env={**os.environ, **env})


def _until_file(path: Path, process: subprocess.Popen[bytes]) -> str:
    while not path.exists():
        assert process.poll() is None
    return path.read_text()


def test_a_script_records_who_runs_and_passes_the_status_on(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(serve_script(["/bin/sh", "-c", "printf '%s' \"$1\" > out; exit 7", "sh", "a 'b' $HOME; c"]))
    done = subprocess.run(["/bin/sh", str(script)], cwd=tmp_path, check=False)
    assert done.returncode == 7
    assert (tmp_path / "out").read_text() == "a 'b' $HOME; c"
    assert (tmp_path / "rank-0.status").read_text() == "7\n"
    assert (tmp_path / "rank-0.pid").read_text().split()[0] == os.uname().nodename


@pytest.mark.parametrize(("ending", "status"), [("exit 0", 0), ("exit 5", 5)])
def test_a_script_waits_for_the_end_that_a_signal_asked_for(tmp_path: Path, ending: str, status: int) -> None:
    script = tmp_path / "serve.sh"
    server = f"trap 'sleep 0.3; {ending}' TERM; touch up; while :; do sleep 0.05; done"
    script.write_text(serve_script(["/bin/sh", "-c", f"cd {tmp_path}; {server}"]))
    process = _start(script)
    _until_file(tmp_path / "up", process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == status
    assert (tmp_path / "rank-0.status").read_text() == f"{status}\n"


@pytest.mark.parametrize(("rank", "status"), [("0", 10), ("1", 11), ("2", 2)])
def test_slurms_number_picks_the_rank(tmp_path: Path, rank: str, status: int) -> None:
    script = tmp_path / "rank.sh"
    script.write_text(rank_script([["/bin/sh", "-c", f"exit {10 + n}"] for n in range(2)]))
    assert _start(script, SLURM_PROCID=rank).wait(20) == status
