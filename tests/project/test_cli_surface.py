"""The command line changes on purpose only, and asking it for help stays cheap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from seekserve.cli import COMMANDS, cli

GOLDEN = Path(__file__).parent / "cli_surface.txt"
# SEEKSERVE_UPDATE_GOLDENS=1 writes it anew; the difference is then reviewed as a diff.
UPDATE = os.environ.get("SEEKSERVE_UPDATE_GOLDENS") == "1"
HEAVY = ["grpc", "jinja2", "numpy", "torch", "transformers", "tritonclient", "yaml"]


def surface() -> Iterator[str]:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        yield name
        for parameter in sorted(command.params, key=_order):
            yield f"  {_describe(parameter)}"


def _order(parameter: click.Parameter) -> tuple[bool, str]:
    """Arguments first, in their order of position (sorting is stable); options by name."""
    return (False, "") if isinstance(parameter, click.Argument) else (True, max(parameter.opts, key=len))


def _describe(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return f"{(parameter.name or '').upper()}{'' if parameter.required else ' (optional)'}"
    assert isinstance(parameter, click.Option)
    spelling = "/".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return spelling
    choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else None
    kind = "|".join(map(str, choices)) if choices else parameter.type.name
    return f"{spelling} {kind}{' (repeatable)' if parameter.multiple else ''}"


def test_commands_and_options_are_those_that_were_agreed() -> None:
    now = "\n".join(surface()) + "\n"
    if UPDATE:
        GOLDEN.write_text(now, encoding="utf-8")
    assert now.splitlines() == GOLDEN.read_text(encoding="utf-8").splitlines()


def loaded_after(code: str) -> list[str]:
    """Heavy modules in a fresh interpreter that has run `code`."""
    report = f"import json, sys; print('LOADED', json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], check=True, capture_output=True, text=True)
    loaded: list[str] = json.loads(done.stdout.rpartition("LOADED ")[2])
    return loaded


def test_help_imports_nothing_heavy() -> None:
    assert loaded_after("from seekserve.cli import cli; cli.main(['--help'], standalone_mode=False)") == []


def test_help_imports_no_command() -> None:
    code = (
        "import sys\nfrom seekserve.cli import cli; cli.main(['--help'], standalone_mode=False)\n"
        "assert not [m for m in sys.modules if m.startswith('seekserve.cli.')]"
    )
    assert loaded_after(code) == []


def test_the_help_of_every_command_imports_nothing_heavy() -> None:
    code = f"from seekserve.cli import cli\nfor n in {list(COMMANDS)}: cli.main([n, '--help'], standalone_mode=False)"
    assert loaded_after(code) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_in_the_list_agrees_with_the_command(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help, f"{name} has no help text"
    assert all(option.help for option in command.params if isinstance(option, click.Option) and not option.hidden)


def test_an_unknown_command_names_the_nearest() -> None:
    done = subprocess.run([sys.executable, "-m", "seekserve", "lunch"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "launch" in done.stderr
