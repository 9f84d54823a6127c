from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve.server.doctor import CHECKS, Finding, Severity, examine
from seekserve.server.doctor.gather import gather
from seekserve.server.doctor.machine import Gpu, Machine, ServerFacts
from seekserve.server.doctor.parse import numbers_of, parse_images, parse_mpirun, parse_nvidia_smi

MIB, GIB = 2**20, 2**30
SERVER = ServerFacts(
    binary="/t",
    found_by="PATH",
    version="2.61.0",
    has_python_backend=True,
    stub="/s",
    stub_python="3.12",
    needs_libpython=False,
    libpython_dir=None,
)
GOOD = Machine(
    python=(3, 12, 1),
    python_executable="/py",
    numpy="1.26.4",
    server=SERVER,
    shm_total_bytes=GIB,
    shm_free_bytes=GIB,
    open_files_limit=65536,
    mpirun="mpirun (Open MPI) 4.1.6",
    images=("nvcr.io/nvidia/tritonserver:25.10-py3",),
    state_free_bytes=GIB,
    temporary_free_bytes=GIB,
)
H200 = Gpu(index=0, name="NVIDIA H200", driver="580.95.05", memory_mib=143771, is_mig=False, compute_capability="9.0")


def _machine(**changes: Any) -> Machine:
    server = {name: changes.pop(name) for name in list(changes) if name in ServerFacts.__dataclass_fields__}
    if server:
        changes["server"] = dataclasses.replace(SERVER, **server)
    return dataclasses.replace(GOOD, **changes)


def _of(machine: Machine, check: str) -> Finding:
    return next(finding for finding in examine(machine) if finding.check == check)


def test_a_good_machine_without_gpu_has_only_good_news_and_two_notes() -> None:
    findings = examine(GOOD)
    assert {finding.severity for finding in findings} == {Severity.OK, Severity.NOTE}
    assert [finding.check for finding in findings if finding.severity is Severity.NOTE] == ["admin key", "GPU"]
    assert len(findings) >= len(CHECKS)


def test_it_is_noted_that_the_admin_key_can_be_read_by_every_user_of_the_machine() -> None:
    assert "every user of this machine can read" in _of(GOOD, "admin key").found
    assert all(finding.check != "admin key" for finding in examine(_machine(server=None)))


@pytest.mark.parametrize(
    ("changes", "check", "severity", "text"),
    [
        ({"python": (3, 9, 2)}, "Python", Severity.WARN, "3.9.2"),
        ({"numpy": None}, "numpy", Severity.ERROR, "not installed"),
        ({"numpy": "2.4.6", "version": "2.51.0"}, "numpy", Severity.ERROR, "2.4.6 with Triton 2.51.0"),
        ({"numpy": "2.4.6"}, "numpy", Severity.OK, "2.4.6"),
        ({"server": None, "server_problem": "looked everywhere"}, "tritonserver", Severity.ERROR, "looked everywhere"),
        ({"version": "2.51.0"}, "tritonserver", Severity.WARN, "version 2.51.0"),
        ({"version": None}, "tritonserver", Severity.NOTE, "version unknown"),
        ({"has_python_backend": False, "stub": None}, "Python stub", Severity.ERROR, "no Python backend"),
        ({"stub": None}, "Python stub", Severity.ERROR, "none for Python 3.12"),
        ({"stub_python": "3.11"}, "Python stub", Severity.WARN, "built for Python 3.11"),
        ({"needs_libpython": True}, "libpython", Severity.ERROR, "no libpython3.12"),
        ({"needs_libpython": True, "libpython_dir": "/lib"}, "libpython", Severity.OK, "/lib"),
        ({"shm_total_bytes": None}, "/dev/shm", Severity.ERROR, "not there"),
        ({"shm_total_bytes": 64 * MIB, "shm_free_bytes": 60 * MIB}, "/dev/shm", Severity.WARN, "Docker's default"),
        ({"shm_free_bytes": 8 * MIB}, "/dev/shm", Severity.ERROR, "8 of 1024 MiB free"),
        ({"shm_leftovers": ("seekserve_x",)}, "leftovers", Severity.WARN, "1 shared-memory files and 0 stubs"),
        ({"orphan_stubs": (12, 13)}, "leftovers", Severity.WARN, "pid 12, 13"),
        ({"open_files_limit": 1024}, "open files", Severity.WARN, "1024"),
        ({"locked_memory_limit_bytes": 8 * MIB}, "locked memory", Severity.NOTE, "8 MiB"),
        ({"locked_memory_limit_bytes": 8 * MIB, "gpus": (H200, H200)}, "locked memory", Severity.WARN, "8 MiB"),
        ({"busy_ports": (8000, 8002)}, "ports", Severity.WARN, "8000, 8002"),
        ({"has_nvidia_smi": True, "nvidia_smi_error": "has failed"}, "GPU", Severity.WARN, "has failed"),
        ({"has_nvidia_smi": True, "gpus": (H200, H200)}, "GPU", Severity.OK, "2 x NVIDIA H200 140 GiB"),
        ({"env": {"CUDA_LAUNCH_BLOCKING": "1"}}, "environment", Severity.WARN, "CUDA_LAUNCH_BLOCKING=1"),
        ({"env": {"CUDA_LAUNCH_BLOCKING": "0"}}, "environment", Severity.OK, "no variable"),
        ({"env": {"NCCL_ALGO": "Ring"}}, "environment", Severity.NOTE, "NCCL_ALGO=Ring"),
        ({"mpirun": None}, "MPI", Severity.NOTE, "not installed"),
        ({"mpirun": None, "gpus": (H200, H200)}, "MPI", Severity.WARN, "not installed"),
        ({"images": None}, "images", Severity.NOTE, "no container engine"),
        ({"images": ()}, "images", Severity.NOTE, "no Triton"),
        ({"temporary_free_bytes": MIB}, "temporary folder", Severity.ERROR, "0.0 GiB"),
    ],
)
def test_each_rule(changes: dict[str, Any], check: str, severity: Severity, text: str) -> None:
    finding = _of(_machine(**changes), check)
    assert (finding.severity, text in finding.found) == (severity, True), finding


@pytest.mark.parametrize(
    ("changes", "check", "text"),
    [
        ({"driver": "535.104.05"}, "driver", "535.104.05, TensorRT-LLM asks for 575"),
        ({"is_mig": True}, "MIG", "enabled on GPU 0"),
        ({"name": "NVIDIA A100", "compute_capability": "8.0"}, "FP8", "compute capability 8.0, FP8 needs 8.9"),
    ],
)
def test_each_gpu_rule(changes: dict[str, Any], check: str, text: str) -> None:
    gpus = (dataclasses.replace(H200, **changes),)
    finding = _of(_machine(has_nvidia_smi=True, gpus=gpus), check)
    assert finding.severity is Severity.WARN
    assert text in finding.found


def test_mixed_cards_ask_for_one_order_of_numbers() -> None:
    gpus = (H200, dataclasses.replace(H200, index=1, name="NVIDIA L4", compute_capability="8.9"))
    assert _of(_machine(has_nvidia_smi=True, gpus=gpus), "GPU order").severity is Severity.NOTE
    ordered = _machine(has_nvidia_smi=True, gpus=gpus, env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert all(finding.check != "GPU order" for finding in examine(ordered))


@given(
    version=st.none() | st.text(max_size=6),
    numpy=st.none() | st.sampled_from(["1.26.4", "2.0", "x"]),
    python=st.tuples(st.integers(2, 4), st.integers(0, 20), st.just(1)),
    shm=st.tuples(st.none() | st.integers(0, GIB), st.none() | st.integers(0, GIB)),
    gpu=st.builds(dataclasses.replace, st.just(H200), driver=st.text(max_size=6), is_mig=st.booleans()),
    count=st.integers(0, 3),
)
def test_every_machine_gets_an_answer_and_every_complaint_says_what_to_do(
    version: str | None,
    numpy: str | None,
    python: tuple[int, int, int],
    shm: tuple[int | None, int | None],
    gpu: Gpu,
    count: int,
) -> None:
    machine = _machine(
        version=version,
        numpy=numpy,
        python=python,
        shm_total_bytes=shm[0],
        shm_free_bytes=shm[1],
        gpus=(gpu,) * count,
        has_nvidia_smi=count > 0,
    )
    for finding in examine(machine):
        assert finding.found
        if finding.severity in (Severity.WARN, Severity.ERROR):
            assert finding.breaks
            assert finding.do


def test_nvidia_smi_is_read_by_columns() -> None:
    text = "0, NVIDIA H200, 580.95.05, 143771, Disabled, 9.0\n1, NVIDIA A30, 580.95.05, [N/A], Enabled, [N/A]\n\n"
    assert parse_nvidia_smi(text) == (
        H200,
        Gpu(index=1, name="NVIDIA A30", driver="580.95.05", memory_mib=None, is_mig=True, compute_capability=None),
    )


@pytest.mark.parametrize("text", ["No devices were found", "0, NVIDIA H200", "x, a, b, c, d, e"])
def test_what_is_no_table_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="nvidia-smi printed"):
        parse_nvidia_smi(text)


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.51.0", (2, 51, 0)), ("580.95.05", (580, 95, 5)), ("2.0rc1", (2, 0)), ("", ()), ("x", ()), ("1.x.3", (1,))],
)
def test_numbers_of_a_version(version: str, numbers: tuple[int, ...]) -> None:
    assert numbers_of(version) == numbers


def test_other_programs_output() -> None:
    assert parse_mpirun("\nmpirun (Open MPI) 4.1.6\n\nReport bugs\n") == "mpirun (Open MPI) 4.1.6"
    assert parse_mpirun("") is None
    lines = "nvcr.io/nvidia/tritonserver:25.10-py3\nubuntu:24.04\nnvcr.io/nvidia/tensorrt-llm/release:1.2.1\n"
    assert parse_images(lines) == ("nvcr.io/nvidia/tensorrt-llm/release:1.2.1", "nvcr.io/nvidia/tritonserver:25.10-py3")


def test_this_machine_can_be_looked_at() -> None:
    machine = gather(os.environ)
    assert machine.python[0] == 3
    assert machine.shm_total_bytes is None or machine.shm_total_bytes > 0
    assert examine(machine)
