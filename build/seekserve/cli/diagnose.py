"""`seekserve diagnose`: what is wrong with a running server, by which numbers, and what to change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from seekserve.monitor.reading import Scrape

__all__ = ["command"]

_PATH = click.Path(path_type=Path)


@click.command("diagnose")
@click.option("--url", "urls", multiple=True, help="Metrics of a server; several may be given, a GPU exporter too.")
@click.option("--prometheus", metavar="URL", help="Read a Prometheus server's stored metrics instead.")
@click.option("--selector", default="", metavar="MATCHERS", help='With --prometheus: as job="triton".')
@click.option("--dump", "dumps", multiple=True, type=_PATH, help="Output of top --once --json, or metrics of collect.")
@click.option("--pid-file", type=_PATH, help="The launch record, where launch was given one.")
@click.option("--id", "launch_id", help="Id of the launch, where several run.")
@click.option("--model", help="Only this model.")
@click.option("--slo", type=_PATH, help="What was promised; without it, twice what was usual is a spike.")
@click.option(
    "--window-s",
    type=click.FloatRange(1.0, 86_400.0),
    help="Time to look at.  [default: 10 of a server, 900 of a Prometheus server]",
)
@click.option("--profile", type=_PATH, metavar="DIR", help="Only write scripts for nsys, ncu and the PyTorch profiler.")
@click.option("--json", "as_json", is_flag=True, help="JSON, with the scrapes it was made from.")
def command(
    urls: tuple[str, ...],
    prometheus: str | None,
    selector: str,
    dumps: tuple[Path, ...],
    pid_file: Path | None,
    launch_id: str | None,
    model: str | None,
    slo: Path | None,
    window_s: float | None,
    profile: Path | None,
    as_json: bool,
) -> int:
    """Say what is wrong with a running server, by which numbers, and what to change.

    Looks at it several times over some seconds, at what a Prometheus server has stored, or at files of earlier looks.
    Exit: 0 when nothing is wrong (notes may be printed), 1 when something is, 4 when nobody answers.
    """
    from seekserve.errors import InputError
    from seekserve.monitor.diagnose import diagnose, diagnosis_text
    from seekserve.output import json_text
    from seekserve.simulate.slo import read_slo

    named = [flag for flag, value in (("--url", urls), ("--prometheus", prometheus), ("--dump", dumps)) if value]
    named += [flag for flag, value in (("--pid-file", pid_file), ("--id", launch_id)) if value is not None]
    if len(named) > 1:
        raise InputError(f"{' and '.join(named)} were given; one of them says where to look")
    if selector and prometheus is None:
        raise InputError("--selector goes with --prometheus")
    if profile is not None:
        return _write_scripts(profile, pid_file, launch_id)
    promised = None if slo is None else read_slo(slo).classes
    found = _scrapes(urls, prometheus, selector, dumps, window_s, pid_file=pid_file, launch_id=launch_id)
    diagnosis = diagnose(found, promised=promised, model=model)
    click.echo(json_text(diagnosis.to_json(found)) if as_json else diagnosis_text(diagnosis))
    return 1 if diagnosis.is_wrong else 0


def _scrapes(
    urls: tuple[str, ...],
    prometheus: str | None,
    selector: str,
    dumps: tuple[Path, ...],
    window_s: float | None,
    **which: Any,
) -> list[Scrape]:
    from seekserve.monitor.sources import from_file, from_prometheus, local_metrics_url, scrape_some, with_scheme

    if dumps:
        return [each for dump in dumps for each in from_file(dump)]
    if prometheus is not None:
        return from_prometheus(prometheus, window_s=window_s or 900.0, selector=selector)
    addresses = [with_scheme(url) for url in urls] or [local_metrics_url(env=os.environ, **which)]
    seconds = window_s or 10.0
    looks = max(2, min(60, round(seconds / 2.0) + 1))
    click.echo(f"looking at {', '.join(addresses)} for {seconds:g} s", err=True)
    return scrape_some(addresses, looks=looks, pause_s=seconds / (looks - 1))


def _write_scripts(folder: Path, pid_file: Path | None, launch_id: str | None) -> int:
    from seekserve.monitor.process_facts import launch_command
    from seekserve.monitor.profile_scripts import profile_scripts
    from seekserve.output import new_folder, write_files
    from seekserve.server.record import LaunchRecord, find_records
    from seekserve.server.stopping import choose_record

    launch = None
    if pid_file is not None or launch_id is not None or len(find_records(os.environ)) == 1:
        record = LaunchRecord.read(choose_record(pid_file=pid_file, launch_id=launch_id, env=os.environ))
        launch = launch_command(record)
    scripts = profile_scripts(launch)
    with new_folder(folder) as made:
        write_files(made, scripts)
        for name in scripts:
            (made / name).chmod(0o755)
    click.echo("\n".join(f"wrote {folder / name}" for name in scripts))
    return 0
