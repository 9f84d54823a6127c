"""How the GPUs of one host are joined: a pure parser of `nvidia-smi topo -m`, and the groups that follow from it.

Tabs separate cells; copies with runs of blanks are taken too. Codes are matched, never the legend's wording. The best
relation of a pair stands in the matrix, so NVLink hides the PCIe path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from seekserve.errors import ConfigError

__all__ = ["PATHS", "Topology", "parse_topology"]

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_COLUMN: Final = re.compile(r"(GPU\d+|NIC\d+|mlx\d+_\d+|[a-z]+\d+(_\d+)?)\Z")
_GPU: Final = re.compile(r"GPU\d+\Z")
_CODE: Final = re.compile(r"(X|SYS|SOC|NODE|PHB|PXB|PIX|NV\d+)\Z")
PATHS: Final[Mapping[str, str]] = {
    "NV": "NVLink",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's host bridge",
    "NODE": "two host bridges of one socket",
    "SYS": "the link between sockets",
}
"""Nearest first."""
_MAX_LINES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    gpus: tuple[str, ...]
    relations: Mapping[tuple[int, int], str]
    """(lower, higher index) -> code; SOC of old drivers is SYS."""
    numa: tuple[str | None, ...]
    """None where the driver does not say, as in containers."""

    def relation(self, a: int, b: int) -> str:
        return self.relations[min(a, b), max(a, b)]

    @property
    def has_nvlink(self) -> bool:
        return any(code.startswith("NV") for code in self.relations.values())

    def groups(self, worst: str = "NV") -> tuple[tuple[int, ...], ...]:
        """GPUs joined by relations at least as near as `worst`; single GPUs are groups of one."""
        left = list(range(len(self.gpus)))
        found = []
        while left:
            group, edge = [left.pop(0)], 0
            while edge < len(group):
                joined = [other for other in left if _rank(self.relation(group[edge], other)) <= _rank(worst)]
                left = [other for other in left if other not in joined]
                group += joined
                edge += 1
            found.append(tuple(sorted(group)))
        return tuple(found)

    def farthest(self, members: Sequence[int]) -> str | None:
        """The worst relation inside a group; None for a single GPU."""
        codes = [self.relation(a, b) for i, a in enumerate(members) for b in members[i + 1 :]]
        return max(codes, key=_rank) if codes else None

    def sockets(self, members: Sequence[int]) -> tuple[str, ...]:
        return tuple(sorted({numa for index in members if (numa := self.numa[index]) is not None}))


def parse_topology(text: str, where: str) -> Topology:
    """Raises ConfigError saying which line is not understood."""
    lines = [_ANSI.sub("", line).rstrip("\n\r") for line in text.splitlines()[:_MAX_LINES]]
    start = next((number for number, line in enumerate(lines) if line.strip().startswith("GPU0")), None)
    if start is None:
        first = next((line.strip() for line in lines if line.strip()), "nothing")
        raise ConfigError(
            f"{where}: no GPU0 column in it; it begins with {first[:80]!r}", hint="the output of `nvidia-smi topo -m`"
        )
    columns = [cell for cell in _cells(lines[start]) if _COLUMN.match(cell)]
    gpus = [column for column in columns if _GPU.match(column)]
    if gpus != [f"GPU{index}" for index in range(len(gpus))] or columns[: len(gpus)] != gpus:
        raise ConfigError(
            f"{where}, line {start + 1}: GPU columns are {', '.join(gpus)[:200]}, not GPU0, GPU1, ... first"
        )
    rows = _rows(lines[start + 1 :], gpus, columns, where, start + 2)
    relations = {}
    for a in range(len(gpus)):
        for b in range(a + 1, len(gpus)):
            one, other = rows[a][0][b], rows[b][0][a]
            if one != other:
                raise ConfigError(f"{where}: GPU{a} reaches GPU{b} by {one}, but GPU{b} reaches GPU{a} by {other}")
            relations[a, b] = one
    return Topology(gpus=tuple(gpus), relations=relations, numa=tuple(row[1] for row in rows))


def _rows(
    lines: Sequence[str], gpus: list[str], columns: list[str], where: str, first_line: int
) -> list[tuple[list[str], str | None]]:
    """(codes to the GPUs, NUMA node) of each GPU row, in order."""
    rows: list[tuple[list[str], str | None]] = []
    for offset, line in enumerate(lines):
        cells = _cells(line)
        if len(rows) == len(gpus) or not cells or cells[0] != f"GPU{len(rows)}":
            continue
        codes = ["SYS" if code == "SOC" else code for code in cells[1 : len(gpus) + 1]]
        bad = next((code for code in codes if not _CODE.match(code)), None)
        if bad is not None or len(codes) < len(gpus) or codes[len(rows)] != "X":
            shown = (
                f"{bad!r} is no relation"
                if bad is not None
                else f"{len(codes)} cells for {len(gpus)} GPUs, X on itself"
            )
            raise ConfigError(f"{where}, line {first_line + offset}: {shown}")
        after = cells[len(columns) + 1 :]
        rows.append((codes, after[1] if len(after) > 1 and after[1] not in ("", "N/A") else None))
    if len(rows) < len(gpus):
        raise ConfigError(f"{where}: {len(gpus)} GPU columns but {len(rows)} GPU rows")
    return rows


def _cells(line: str) -> list[str]:
    """Positions count: an affinity may be empty, so empty cells between tabs stay. The corner of the header goes."""
    cells = line.split("\t") if "\t" in line else re.split(r"\s{2,}", line.strip())
    cells = [cell.strip() for cell in cells]
    return cells[1:] if cells and not cells[0] else cells


def _rank(code: str) -> int:
    kind = "NV" if code.startswith("NV") else code
    return list(PATHS).index(kind)
