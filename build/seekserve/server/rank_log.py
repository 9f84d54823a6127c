"""Reads the one log of a group: whose a line is, what each rank said last, and which rank failed first.

mpirun (`--tag-output`) begins a line with `[1,0]<stdout>:` or, from version 5 on, `[job,0]<stdout>:`; srun (`--label`)
with `0: `. Both versions of mpirun name the first process that failed. Pure.
"""

from __future__ import annotations

import re

from seekserve.server.process import describe_status

__all__ = ["first_failure", "last_lines"]

_MPI = re.compile(r"\[[^\],\[]*,(\d+)\]<std(?:out|err)>:\s?(.*)")
_SLURM = re.compile(r"\s*(\d+): (.*)")
_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)")
_CODE = re.compile(r"Process name:\s*\[.*,\s*(\d+)\]\s*Exit code:\s*(\d+)")
_SRUN = re.compile(
    r"error: (\S+): tasks? ([\d,-]+): (?:Exited with exit code (\d+)|(Killed|Terminated|Aborted|Segmentation fault))"
)
_SRUN_SIGNALS = {"Killed": 9, "Terminated": 15, "Aborted": 6, "Segmentation fault": 11}


def last_lines(text: str, ranks: int, launcher: str) -> list[str]:
    """One sentence for each rank."""
    pattern = _SLURM if launcher == "srun" else _MPI
    last: dict[int, str] = {}
    for line in text.splitlines():
        match = pattern.match(line)
        if match is not None and match.group(2).strip():
            last[int(match.group(1))] = match.group(2).strip()
    return [f"rank {rank}: {last.get(rank, '(it said nothing)')}" for rank in range(ranks)]


def first_failure(text: str) -> str | None:
    """`rank 1 was killed by SIGKILL on node a`; None where the launcher named nobody."""
    found = [
        (match.start(), f"rank {match.group(1)} was {describe_status(-int(match.group(3)))} on node {match.group(2)}")
        for match in _SIGNAL.finditer(text)
    ]
    found += [
        (match.start(), f"rank {match.group(1)} ended with exit status {match.group(2)}")
        for match in _CODE.finditer(text)
    ]
    found += [
        (match.start(), f"rank {match.group(2)} {_srun_end(match)} on node {match.group(1)}")
        for match in _SRUN.finditer(text)
    ]
    return min(found)[1] if found else None


def _srun_end(match: re.Match[str]) -> str:
    code, word = match.group(3), match.group(4)
    return f"was {describe_status(-_SRUN_SIGNALS[word])}" if word else f"ended with exit status {code}"
