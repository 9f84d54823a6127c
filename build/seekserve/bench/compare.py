"""Two result files side by side, of `bench` or of `simulate`, run by run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from seekserve.errors import InputError

__all__ = ["compare_text", "comparison", "read_runs"]

_SHOWN = (
    "offered_rps",
    "goodput_rps",
    "attainment",
    "shed_ratio",
    "expired_ratio",
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_p50_ms",
    "tpot_p99_ms",
    "itl_p99_ms",
    "e2e_p99_s",
    "output_tokens_per_s",
)
_KEY = ("policy", "trace", "speed", "seed")

Run = Mapping[str, object]


def read_runs(path: Path) -> list[Run]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    runs = data.get("runs") if isinstance(data, dict) else None
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise InputError(f"{path} has no `runs`", hint="it takes the files that bench and simulate print with --json")
    return runs


def comparison(before: Sequence[Run], after: Sequence[Run]) -> list[tuple[str, Run, Run]]:
    """Runs that belong together: by policy, trace, speed and seed, or the only one of each file."""
    if len(before) == len(after) == 1:
        return [(_name(after[0]), before[0], after[0])]
    by_key = {_key(run): run for run in before}
    pairs = [(_name(run), by_key[_key(run)], run) for run in after if _key(run) in by_key]
    if not pairs:
        raise InputError("the two files have no run in common", hint="runs are matched by policy, trace, speed, seed")
    return pairs


def compare_text(pairs: Sequence[tuple[str, Run, Run]]) -> str:
    lines: list[str] = []
    for name, before, after in pairs:
        lines += [name, f"  {'':<20} {'A':>12} {'B':>12} {'B / A':>8}"]
        for field in _SHOWN:
            a, b = before.get(field), after.get(field)
            if not isinstance(a, (int, float)) and not isinstance(b, (int, float)):
                continue
            lines.append(f"  {field:<20} {_shown(a):>12} {_shown(b):>12} {_ratio(a, b):>8}")
        for letter, run in (("A", before), ("B", after)):
            live = run.get("live")
            if isinstance(live, dict) and live.get("is_valid") is False:
                lines.append(f"  {letter} is {live.get('verdict')}")
    return "\n".join(lines)


def _key(run: Run) -> tuple[object, ...]:
    return tuple(run.get(name) for name in _KEY)


def _name(run: Run) -> str:
    return ", ".join(f"{name} {run.get(name)}" for name in _KEY)


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else "-"


def _ratio(a: object, b: object) -> str:
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)) or not a:
        return "-"
    return f"{b / a:.3f}"
