#!/usr/bin/env python
"""Writes the tables of docs/monitoring.md anew from the package's data. `--check` only says whether they differ."""

from __future__ import annotations

import sys
from pathlib import Path

from seekserve.monitor.reference import SECTIONS

FILE = Path(__file__).resolve().parent.parent / "docs" / "monitoring.md"


def renewed(text: str) -> str:
    for name, lines in SECTIONS.items():
        begin, end = f"<!-- {name}: made by scripts/monitoring_docs.py -->", f"<!-- end of {name} -->"
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{FILE}: no section between {begin!r} and {end!r}")
        text = "\n".join([head + begin, "", *lines(), "", end + tail])
    return text


def main() -> int:
    old = FILE.read_text(encoding="utf-8")
    new = renewed(old)
    if "--check" in sys.argv[1:]:
        if new != old:
            print(f"{FILE} is out of step: run scripts/monitoring_docs.py", file=sys.stderr)
        return int(new != old)
    FILE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
