"""`seekserve policy`: check, show and compare policy files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from seekserve_backend.contract.policy import Policy

__all__ = ["command"]

_FILE = click.Path(path_type=Path)


@click.group("policy")
def command() -> None:
    """Check, show and compare policy files.

    A policy says how requests are classed, queued, paced and refused. The backend reads the one in its model's folder
    again when it changes: write it there with `render --policy`, or replace policy.json by the output of `show`.
    FILE may also be the name of a ready-made policy: guide.
    """


@command.command("check")
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Exit 0 when FILE is a valid policy, 2 with every fault otherwise."""
    policy = _load(file)
    click.echo(f"{file} is a valid policy: {policy.name}, kind {policy.kind}, classes {', '.join(policy.classes)}")
    for number, route in enumerate(policy.routes, start=1):
        click.echo(f"  route {number}: {route.text} -> {route.request_class}")
    if policy.routes:
        click.echo(f"  otherwise -> {policy.default_class}")


@command.command("show")
@click.argument("file", type=_FILE, required=False)
@click.option("--kind", type=click.Choice(["paced", "fcfs", "static", "seed"]), help="The defaults of this kind.")
def show(file: Path | None, kind: str | None) -> None:
    """Print FILE with every default filled in, as the backend reads it; without FILE, the default policy."""
    if (file is None) == (kind is None) and file is not None:
        raise click.UsageError("give FILE or --kind, not both")
    click.echo((_load(file) if file is not None else _default(kind or "paced")).to_json(), nl=False)


@command.command("diff")
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
def diff(old: Path, new: Path) -> None:
    """Print each value that differs between OLD and NEW, defaults filled in. Exit 0 whether any does or not."""
    from seekserve.output import table

    before, after = _flat(_load(old)), _flat(_load(new))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    rows = [(name, f"{before.get(name, 'absent')} -> {after.get(name, 'absent')}") for name in names]
    click.echo("\n".join(table(rows)) if rows else "no difference")


def _load(path: Path) -> Policy:
    from seekserve.repository.policy import read_policy

    return read_policy(path, setting="FILE")


def _default(kind: str) -> Policy:
    from seekserve_backend.contract.policy import Policy

    return Policy(name=kind, kind=kind, max_running=64 if kind == "static" else None)


def _flat(policy: Policy) -> dict[str, str]:
    """Dotted name -> value as JSON."""
    import json
    from typing import Any

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, each in value.items():
                walk(f"{prefix}.{key}" if prefix else key, each)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for number, each in enumerate(value):
                walk(f"{prefix}[{number}]", each)
        else:
            out[prefix] = json.dumps(value, ensure_ascii=False)

    out: dict[str, str] = {}
    walk("", json.loads(policy.to_json()))
    return out
