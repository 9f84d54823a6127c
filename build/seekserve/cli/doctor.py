"""`seekserve doctor`: check this machine for what commonly breaks a deployment."""

from __future__ import annotations

import json
import os

import click

__all__ = ["command"]


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
def command(as_json: bool) -> int:
    """Say what this machine has, what that breaks and what to do. Exit: 0, or 3 when a launch here will fail."""
    from seekserve.errors import ConflictError
    from seekserve.server.doctor import Severity, examine
    from seekserve.server.doctor.gather import gather

    findings = examine(gather(os.environ))
    if as_json:
        click.echo(json.dumps([finding.to_json() for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo(f"{finding.severity.value:5}  {finding.check:16}  {finding.found}")
            meaning = "means" if finding.severity is Severity.NOTE else "breaks"
            for label, text in ((meaning, finding.breaks), ("do", finding.do)):
                if text:
                    click.echo(f"{'':25}{label}: {text}")
    return ConflictError.exit_code if any(finding.severity is Severity.ERROR for finding in findings) else 0
