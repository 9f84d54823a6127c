"""Every check, in the order in which they are printed; add one by adding a function to CHECKS."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seekserve.server.doctor.accelerator import check_environment, check_gpus, check_images, check_mpi
from seekserve.server.doctor.finding import Finding, error, note, ok, warn
from seekserve.server.doctor.machine import Machine
from seekserve.server.doctor.runtime import (
    check_admin_key,
    check_libpython,
    check_numpy,
    check_python,
    check_stub,
    check_tritonserver,
)

__all__ = ["CHECKS", "examine"]

_MIB = 2**20
_GIB = 2**30


def check_shm(machine: Machine) -> Finding:
    if machine.shm_total_bytes is None or machine.shm_free_bytes is None:
        return error(
            "/dev/shm",
            "is not there",
            breaks="every Python model: server and stub exchange tensors through it",
            do="mount a tmpfs at /dev/shm",
        )
    total, free = machine.shm_total_bytes, machine.shm_free_bytes
    found = f"{free / _MIB:.0f} of {total / _MIB:.0f} MiB free"
    if free < 16 * _MIB:
        return error(
            "/dev/shm",
            found,
            breaks="the stub cannot get its first 1 MiB regions and dies of a bus error",
            do="remove leftovers (below), or start the container with --shm-size=1g",
        )
    if total <= 64 * _MIB:
        return warn(
            "/dev/shm",
            f"{found}: Docker's default",
            breaks="large or many tensors at once; NCCL between GPUs of one node",
            do="start the container with --shm-size=1g or --ipc=host",
        )
    return ok("/dev/shm", found)


def check_leftovers(machine: Machine) -> Finding:
    files, stubs = machine.shm_leftovers, machine.orphan_stubs
    if not files and not stubs:
        return ok("leftovers", "no shared memory and no stub of a dead server")
    found = f"{len(files)} shared-memory files and {len(stubs)} stubs (pid {', '.join(map(str, stubs)) or '-'})"
    return warn(
        "leftovers",
        f"{found} of a server that was killed",
        breaks="they hold memory, /dev/shm and perhaps a GPU",
        do="end these stubs; then remove " + (" ".join(f"/dev/shm/{name}" for name in files[:4]) or "nothing else"),
    )


def check_limits(machine: Machine) -> Sequence[Finding]:
    files, locked = machine.open_files_limit, machine.locked_memory_limit_bytes
    findings = []
    if files is not None:
        few = files < 4096
        findings.append(
            warn(
                "open files",
                f"limit {files}",
                breaks="many connections at once: each takes a descriptor, and so does each shard while loading",
                do="ulimit -n 65536",
            )
            if few
            else ok("open files", f"limit {files}")
        )
    if locked is None:
        findings.append(ok("locked memory", "unlimited"))
    else:
        found = f"limit {locked / _MIB:.0f} MiB"
        todo = "ulimit -l unlimited, in a container --ulimit memlock=-1"
        several = len(machine.gpus) > 1
        breaks = "RDMA and pinned buffers of several GPUs"
        findings.append((warn if several else note)("locked memory", found, breaks=breaks, do=todo))
    return findings


def check_ports(machine: Machine) -> Finding:
    if not machine.busy_ports:
        return ok("ports", "8000, 8001 and 8002 are free")
    return warn(
        "ports",
        f"in use on 127.0.0.1: {', '.join(map(str, machine.busy_ports))}",
        breaks="a launch with the default ports",
        do="set --http-port, --grpc-port and --metrics-port, or 0 to have free ones picked",
    )


def check_disk(machine: Machine) -> Sequence[Finding]:
    findings = []
    for where, free_bytes, least in (
        ("state folder", machine.state_free_bytes, _GIB // 4),
        ("temporary folder", machine.temporary_free_bytes, _GIB // 4),
    ):
        if free_bytes is None:
            continue
        found = f"{free_bytes / _GIB:.1f} GiB free"
        findings.append(
            ok(where, found)
            if free_bytes >= least
            else error(where, found, breaks="launch records, logs and the run folder", do="free some space")
        )
    return findings


CHECKS: tuple[Callable[[Machine], Finding | Sequence[Finding]], ...] = (
    check_python,
    check_numpy,
    check_tritonserver,
    check_admin_key,
    check_stub,
    check_libpython,
    check_shm,
    check_leftovers,
    check_limits,
    check_ports,
    check_gpus,
    check_environment,
    check_mpi,
    check_images,
    check_disk,
)


def examine(machine: Machine) -> list[Finding]:
    findings: list[Finding] = []
    for check in CHECKS:
        result = check(machine)
        findings += [result] if isinstance(result, Finding) else result
    return findings
