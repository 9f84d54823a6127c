"""Hosts and their slots, from `--hosts a:8,b:8` or an Open MPI hostfile. The first one is where rank 0 listens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import InputError
from seekserve.output import problems_text

__all__ = ["Host", "is_loopback_name", "parse_hosts", "place", "read_hostfile"]

# What a host name or an address may hold; never a blank, a comma or an option.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    name: str
    slots: int
    """Ranks that it takes: its GPUs."""

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def parse_hosts(text: str) -> tuple[Host, ...]:
    """`a:8,b:8`. Raises InputError with every fault."""
    return _checked("--hosts", [entry.strip().partition(":")[::2] for entry in text.split(",")])


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Lines of `NAME slots=N`; `#` begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--hostfile {path} cannot be read: {error}") from error
    entries = []
    for line in lines:
        words = line.partition("#")[0].split()
        if words:
            slots = [word.partition("=")[2] for word in words[1:] if word.startswith("slots=")]
            entries.append((words[0], slots[0] if slots else ""))
    return _checked(f"--hostfile {path}", entries)


def _checked(where: str, entries: Iterable[tuple[str, str]]) -> tuple[Host, ...]:
    hosts: list[Host] = []
    problems = []
    for name, slots in entries:
        if not _NAME.fullmatch(name):
            problems.append(f"{name!r} is not a host name")
        elif not slots.isdecimal() or int(slots) < 1:
            problems.append(f"host {name} has {slots or 'no'} slots; say how many ranks it takes, such as {name}:8")
        elif any(host.name == name for host in hosts):
            problems.append(f"host {name} stands in it twice; give it once with all its slots")
        else:
            hosts.append(Host(name=name, slots=int(slots)))
    if not hosts and not problems:
        problems.append("it names no host")
    if problems:
        raise InputError(problems_text(where, problems))
    return tuple(hosts)


def is_loopback_name(name: str) -> bool:
    return name.startswith("127.") or name in ("localhost", "localhost.localdomain", "ip6-localhost", "::1")


def place(hosts: tuple[Host, ...], ranks: int) -> tuple[str, ...]:
    """Host of each rank: the first host is filled before the second is begun, as MPI does it."""
    names = [host.name for host in hosts for _ in range(host.slots)]
    assert len(names) >= ranks, (hosts, ranks)
    return tuple(names[:ranks])
