"""Lines as Open MPI 4.1, Open MPI 5 and Slurm write them."""

from __future__ import annotations

import pytest

from seekserve.server.rank_log import first_failure, last_lines
from seekserve.server.start_facts import peer_fact, shm_fact

SIGNAL_4 = "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."
SIGNAL_5 = "prterun noticed that process rank 3 with PID 4711 on node n2 exited on signal 11 (Segmentation fault)."
CODE_4 = "The first process to do so was:\n\n  Process name: [[15521,1],1]\n  Exit code:    7\n-----"
CODE_5 = "The first process to do so was:\n\n   Process name: [prterun-vm-99@1,0] Exit code:    3\n-----"
SRUN = "srun: error: node7: task 12: Exited with exit code 4\nsrun: error: node7: task 13: Killed\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SIGNAL_4, "rank 1 was killed by SIGKILL on node vm"),
        (SIGNAL_5, "rank 3 was killed by SIGSEGV on node n2"),
        (CODE_4, "rank 1 ended with exit status 7"),
        (CODE_5, "rank 0 ended with exit status 3"),
        (SRUN, "rank 12 ended with exit status 4 on node node7"),
        ("srun: error: n: task 0: Killed", "rank 0 was killed by SIGKILL on node n"),
        ("srun: error: n: tasks 0,2-3: Exited with exit code 1", "rank 0,2-3 ended with exit status 1 on node n"),
        (f"{CODE_4}\n{SIGNAL_4}", "rank 1 ended with exit status 7"),
        ("[1,0]<stdout>:all is well", None),
        ("", None),
    ],
)
def test_the_first_rank_that_failed_and_how(text: str, sentence: str | None) -> None:
    assert first_failure(text) == sentence


def test_the_last_line_of_each_rank() -> None:
    text = "[1,0]<stdout>:one\n[1,1]<stderr>:two\n[1,0]<stdout>:three\n[1,1]<stdout>: \nnobody's\n"
    assert last_lines(text, 3, "mpirun") == ["rank 0: three", "rank 1: two", "rank 2: (it said nothing)"]
    assert last_lines("[prterun-vm-9@1,0]<stdout>: one\n", 1, "mpirun") == ["rank 0: one"]
    assert last_lines(" 0: one\n11: two\n", 1, "srun") == ["rank 0: one"]


MATRIX = (
    " \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\t{}\tOK\t\n GPU1\t{}\tX\tOK\t\n GPU2\tOK\tOK\tX\t\n\nLegend:\n\n  X    = Self\n"
)


def test_pairs_of_gpus_that_cannot_reach_each_other_are_named() -> None:
    assert peer_fact(MATRIX.format("OK", "OK")) == "GPU peer access: all 3 pairs can read each other"
    assert "not between 0-1 GNS" in peer_fact(MATRIX.format("GNS", "GNS"))
    assert "unknown" in peer_fact(None)


def test_a_small_shared_memory_is_named_with_its_cure() -> None:
    assert "--shm-size=1g" in shm_fact(64 << 20, 1 << 20)
    assert shm_fact(4 << 30, 2 << 30) == "/dev/shm: 2.0 GiB of 4.0 GiB free"
    assert "cannot be looked at" in shm_fact(None, None)
