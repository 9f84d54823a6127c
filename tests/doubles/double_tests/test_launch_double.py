"""The double of the launch helper: ranks, variables, and who ends with whom."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.doubles.double_tests.package import DOUBLES, write_model

LAUNCH = DOUBLES / "bin" / "trtllm-llmapi-launch"
COMMAND = """
import json, os, sys
import tensorrt_llm
from pathlib import Path
folder, mode = Path(sys.argv[1]), sys.argv[2]
left = [name for name in os.environ if name.startswith(("OMPI_", "PMIX_", "UCX_", "SLURM_"))]
(folder / "seen.json").write_text(json.dumps({"left": left, "size": os.environ["tllm_mpi_size"]}))
if mode == "fail":
    sys.exit(3)
llm = tensorrt_llm.LLM(model=str(folder / "model"), skip_tokenizer_init=True, tensor_parallel_size=2)
params = tensorrt_llm.SamplingParams(end_id=1, max_tokens=400, ignore_eos=mode == "long")
result = llm.generate_async([5, 6], sampling_params=params, streaming=True)
for part in result:
    (folder / "tokens.json").write_text(json.dumps(part.outputs[0].token_ids))
llm.shutdown()
"""


@contextmanager
def ranks(folder: Path, mode: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    write_model(folder / "model")
    (folder / "command.py").write_text(COMMAND)
    base = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DOUBLE_TRTLLM_RENDEZVOUS": str(folder / "meet"),
        "DOUBLE_TRTLLM_BEHAVIOUR": json.dumps({"step_ms": 20 if mode == "long" else 1}),
        "OMPI_COMM_WORLD_SIZE": "2",
        "UCX_TLS": "tcp",
    }
    words = [str(LAUNCH), "python3", str(folder / "command.py"), str(folder), mode]
    started = [
        subprocess.Popen(
            words,
            env={**base, "OMPI_COMM_WORLD_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for rank in range(2)
    ]
    try:
        yield started
    finally:
        for each in started:
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait(10)


def wait_for(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.05)


def test_command_runs_beside_the_leader_and_all_end_together(tmp_path: Path) -> None:
    with ranks(tmp_path, "short") as (first, second):
        assert first.wait(30) == 0
        assert second.wait(10) == 0
    assert json.loads((tmp_path / "tokens.json").read_text()) == [5, 6, 1]
    assert json.loads((tmp_path / "seen.json").read_text()) == {"left": [], "size": "2"}
    assert not (tmp_path / "meet" / "leader.json").exists()


def test_failed_command_leaves_leader_and_worker_running(tmp_path: Path) -> None:
    with ranks(tmp_path, "fail") as (first, second):
        wait_for(tmp_path / "seen.json")
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(1)
        assert second.poll() is None


def test_death_of_a_worker_stops_the_tokens(tmp_path: Path) -> None:
    with ranks(tmp_path, "long") as (first, second):
        wait_for(tmp_path / "tokens.json")
        os.killpg(second.pid, signal.SIGKILL)
        second.wait(10)
        time.sleep(0.5)
        before = (tmp_path / "tokens.json").read_text()
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.5)
        assert (tmp_path / "tokens.json").read_text() == before


def test_wrong_world_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    code = f"import tensorrt_llm as t; t.LLM(model={str(tmp_path / 'model')!r}, skip_tokenizer_init=True)"
    for environ, words in (
        ({"TLLM_SPAWN_PROXY_PROCESS": "1", "tllm_mpi_size": "2"}, "launched with 2 ranks, the model needs 1"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, "rank 0"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "2 ranks, the model needs 1"),
    ):
        child = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(DOUBLES), **environ},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert child.returncode == 1
        assert words in child.stderr
