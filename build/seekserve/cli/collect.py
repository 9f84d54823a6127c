"""`seekserve collect`: one archive with what is needed to understand a failure, secrets masked."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

__all__ = ["command"]


@click.command("collect")
@click.option("--out", type=click.Path(path_type=Path), help="The archive.  [default: seekserve-report-TIME.tar.gz]")
@click.option("--pid-file", type=click.Path(path_type=Path), help="The launch record, where launch was given one.")
@click.option("--id", "launch_id", help="Id of the launch, where several run.")
@click.option("--metrics-url", help="Metrics of a server that was not launched here.")
@click.option(
    "--interval-s",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.1, 600.0),
    help="Between the two scrapes of the metrics.",
)
@click.option("--dry-run", is_flag=True, help="Gather and list, write nothing.")
def command(
    out: Path | None,
    pid_file: Path | None,
    launch_id: str | None,
    metrics_url: str | None,
    interval_s: float,
    dry_run: bool,
) -> None:
    """Gather versions, plan, policy, metrics, log tails, topology and kernel messages into one archive.

    Without a launch it is about this machine alone. Keys, tokens and passwords are masked; prompts and answers are left
    out. Look through it before you send it: `tar -tzf` lists it, and MANIFEST.json says what is missing and why.
    """
    from seekserve.errors import TargetExists
    from seekserve.monitor.archive import listing, write_archive
    from seekserve.monitor.collect import Subject, gather_parts
    from seekserve.output import bytes_text
    from seekserve.server.record import LaunchRecord, find_records, records_dir
    from seekserve.server.stopping import choose_record

    target = out or Path(time.strftime("seekserve-report-%Y%m%d-%H%M%S.tar.gz"))
    if not dry_run and (target.exists() or target.is_symlink()):
        raise TargetExists(f"{target} exists already", hint="name another with --out, or move it away")
    is_named = pid_file is not None or launch_id is not None
    record = None
    if is_named or (metrics_url is None and find_records(os.environ)):
        record = LaunchRecord.read(choose_record(pid_file=pid_file, launch_id=launch_id, env=os.environ))
    subject = Subject(
        record=record,
        metrics_url=metrics_url,
        env=os.environ,
        state_dir=records_dir(os.environ).parent,
        interval_s=interval_s,
    )
    parts = gather_parts(subject)
    click.echo("\n".join(listing(parts)))
    about = "this machine alone: no launch is recorded" if record is None else f"launch {record.id}"
    if dry_run:
        click.echo(f"{sum(part.text is not None for part in parts)} parts about {about}; nothing was written")
        return
    size_bytes = write_archive(parts, target)
    click.echo(f"wrote {target}, {bytes_text(size_bytes)}, about {about}")
