"""`seekserve calibrate`: the step model of a bundle, from measured steps."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["command"]


@click.command("calibrate")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--samples",
    type=click.Path(path_type=Path),
    help="Measured steps: a step log of the backend, or iteration statistics of TensorRT-LLM. Without it the engine is "
    "measured in this process (reference engine).",
)
@click.option("--write", "is_written", is_flag=True, help="Put the model into the bundle.")
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Passes over all batches.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(bundle: Path, samples: Path | None, is_written: bool, repeats: int, as_json: bool) -> None:
    """Fit the step model of BUNDLE, by which requests are priced, to measured engine steps.

    A bundle whose plan knew its GPU carries a predicted model, others carry none and are priced from what the running
    server measures. Do this again when hardware, engine version or settings change, or when the bias that
    `seekserve status` shows stays away from 1.

    Steps of a running server are recorded when it is launched with SEEKSERVE_STEP_LOG=FILE in its environment.

    Exit status: 2 bad input, 130 interrupted.
    """
    from seekserve.calibrate import CalibrationRequest, calibrate
    from seekserve.calibrate.report import report_json, report_text
    from seekserve.evaluate.in_process import need_local
    from seekserve.output import json_text

    request = CalibrationRequest(bundle=bundle, samples=samples, is_written=is_written, repeats=repeats)
    done = calibrate(request, need_local, _progress)
    written_to = str(bundle) if is_written else None
    if as_json:
        click.echo(json_text(report_json(done, written_to=written_to)))
    else:
        click.echo(report_text(done, written_to=written_to))


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r  measuring: batch {done} of {total}", err=True, nl=done == total)
