"""`seekserve soak`: a deployment tried under load against its SLO file, passed or failed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from seekserve.monitor.soak.checks import Bounds
    from seekserve.monitor.soak.report import Report
    from seekserve.server.record import LaunchRecord

__all__ = ["command"]

SIZES = ("smoke", "load", "drill")
_PATH = click.Path(path_type=Path)
_COUNT, _SHARE, _SECONDS = click.IntRange(1), click.FloatRange(0.0, 1.0), click.FloatRange(0.0, min_open=True)


@click.command("soak", context_settings={"show_default": True})
@click.option(
    "--size", default="smoke", type=click.Choice(SIZES), help="How hard: a minute, a quarter of an hour, faults."
)
@click.option(
    "--slo", type=_PATH, help="Classes, their shares and targets: what has to hold. [needed for smoke and load]"
)
@click.option("--url", help="gRPC address of the server, instead of a launch's record.")
@click.option("--metrics-url", help="Its metrics, with --url: then its books have to balance too.")
@click.option("--model", help="Model name; by default the one of the launch.")
@click.option("--pid-file", type=_PATH, help="The launch record, where launch was given one.")
@click.option("--id", "launch_id", help="Id of the launch, where several run.")
@click.option("--rate", type=_SECONDS, help="Planned requests a second.  [default: the trace's, or 1; drill: 2.7]")
@click.option("--duration-s", type=_SECONDS, help="Of the planned load, and of each drill.  [default: 60; 600; 70]")
@click.option("--trace", type=_PATH, help="Lengths and times of requests; without one all are alike (drills: made up).")
@click.option("--columns", help="Of another CSV, as in bench.")
@click.option("--prompt-tokens", default=1024, type=_COUNT, help="Without a trace.")
@click.option("--output-tokens", default=128, type=_COUNT, help="Without a trace.")
@click.option("--bundle", type=_PATH, help="Bundle that is served: prompts are then token ids of its vocabulary.")
@click.option(
    "--share", default=0.9, type=_SHARE, help="Of the requests of each class that have to meet their targets."
)
@click.option("--failed-share", default=0.0, type=_SHARE, help="Of requests that may fail at the planned load.")
@click.option(
    "--kept-goodput", default=0.7, type=_SHARE, help="Of the planned goodput that twice the load has to leave."
)
@click.option("--recovery-s", default=60.0, type=_SECONDS, help="From a fault until requests are good again.")
@click.option("--drill", "drills", multiple=True, metavar="NAME", help="Only this drill; may be given again.")
@click.option("--may-break", is_flag=True, help="The drill may kill the process that serves the launch named.")
@click.option("--seed", default=0, type=click.IntRange(0), help="Of gaps, classes and prompts.")
@click.option("--report", type=_PATH, help="Write a self-contained HTML page here.")
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
def command(
    size: str, drills: tuple[str, ...], may_break: bool, report: Path | None, as_json: bool, **flags: Any
) -> int:
    """Try a deployment against its SLO file and say whether it passed.

    \b
    smoke  the planned load for a minute                                        (weekly, and before a release)
    load   the planned load, twice that, and the planned load again             (monthly)
    drill  faults of the engine under load, on a server of its own; or, with
           --may-break, the death of the process that serves a launch           (quarterly)

    Exit: 0 passed, 1 failed (or the measurement itself is not valid), 2 bad input, 4 nobody answers.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from seekserve.errors import InputError
    from seekserve.monitor.soak.checks import Bounds
    from seekserve.output import write_files

    bounds = Bounds(
        share=flags["share"],
        failed_share=flags["failed_share"],
        kept_goodput=flags["kept_goodput"],
        recovery_s=flags["recovery_s"],
    )
    if drills and (size != "drill" or may_break):
        raise InputError("--drill names drills of --size drill without --may-break")
    if may_break and size != "drill":
        raise InputError("--may-break goes with --size drill")
    done = (
        _own_drills(drills, bounds, flags)
        if size == "drill" and not may_break
        else _server(size, bounds, flags, may_break)
    )
    if report is not None:
        write_files(report.parent, {report.name: done.html()})
    click.echo(done.to_json() if as_json else done.text())
    return 0 if done.is_ok else 1


def _own_drills(names: tuple[str, ...], bounds: Bounds, flags: dict[str, Any]) -> Report:
    from seekserve.errors import InputError
    from seekserve.monitor.soak.drills import DRILLS, chosen
    from seekserve.monitor.soak.run import own_drills
    from seekserve.simulate.slo import read_slo

    given = [
        name for name in ("url", "pid_file", "launch_id", "metrics_url", "model", "bundle") if flags[name] is not None
    ]
    if given:
        flag = "id" if given[0] == "launch_id" else given[0].replace("_", "-")
        raise InputError(
            f"--{flag} names a server, and --size drill starts one of its own",
            hint="--may-break lets it kill the process that serves a launch instead",
        )
    try:
        drills = chosen(names or None)
    except KeyError as error:
        known = ", ".join(drill.name for drill in DRILLS)
        raise InputError(f"--drill {error.args[0]!r} is not known", hint=f"one of {known}") from None
    return own_drills(
        drills,
        slo=None if flags["slo"] is None else read_slo(flags["slo"]),
        bounds=bounds,
        rate=flags["rate"],
        duration_s=flags["duration_s"],
        trace=flags["trace"],
        seed=flags["seed"],
        progress=lambda text: click.echo(text, err=True) if text else None,
    )


def _server(size: str, bounds: Bounds, flags: dict[str, Any], may_break: bool) -> Report:
    from seekserve.errors import InputError
    from seekserve.monitor.soak.run import Ask, soak_server
    from seekserve.simulate.slo import read_slo

    if flags["slo"] is None:
        raise InputError("against what? --slo FILE says what was promised", hint="its form: docs/operations.md")
    record = _record(flags, is_needed=may_break)
    progress = _progress()
    done = soak_server(
        Ask(
            size=size,
            question=_question(size, flags, record),
            slo=read_slo(flags["slo"]),
            bounds=bounds,
            metrics_url=flags["metrics_url"] if record is None else record.metrics_url,
            record=record,
            may_break=may_break,
        ),
        progress,
    )
    progress("")
    return done


def _record(flags: dict[str, Any], *, is_needed: bool) -> LaunchRecord | None:
    from seekserve.errors import InputError
    from seekserve.server.record import LaunchRecord
    from seekserve.server.stopping import choose_record

    is_named = flags["pid_file"] is not None or flags["launch_id"] is not None
    if flags["url"] is not None:
        if is_named or is_needed:
            raise InputError("--url names a server directly; leave it out where a launch is meant")
        return None
    return LaunchRecord.read(
        choose_record(pid_file=flags["pid_file"], launch_id=flags["launch_id"], env=os.environ)
    )  # fmt: skip


def _question(size: str, flags: dict[str, Any], record: LaunchRecord | None) -> Any:
    from seekserve.bench.session import Question

    model = flags["model"]
    if model is None and record is not None and len(record.models) == 1:
        model = record.models[0]
    return Question(
        url=flags["url"] if record is None else record.grpc_url,
        model=model,
        label=size,
        trace=flags["trace"],
        columns=flags["columns"],
        rows=None,
        skip_rows=0,
        rate=flags["rate"],
        speed=None,
        duration_s=flags["duration_s"],
        prompt_tokens=flags["prompt_tokens"],
        output_tokens=flags["output_tokens"],
        slo=flags["slo"],
        process="poisson",
        gap_cv=3.0,
        surge_factor=3.0,
        surge_s=60.0,
        tenants=None,
        bundle=flags["bundle"],
        lengths="max",
        retries=0,
        ignore_hint=False,
        patience_s=None,
        cancel_share=0.0,
        cancel_after_s=1.0,
        drain_s=330.0,
        timeout_s=330.0,
        seed=flags["seed"],
    )


def _progress() -> Callable[[str], None]:
    """One line that is written over on a terminal, and a line now and then elsewhere."""
    is_terminal, count = sys.stderr.isatty(), 0

    def show(text: str) -> None:
        nonlocal count
        if is_terminal:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
        elif text and count % 10 == 0:
            click.echo(text, err=True)
        count += 1

    return show
