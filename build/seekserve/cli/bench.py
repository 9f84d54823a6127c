"""`seekserve bench`: open-loop load on a running server, judged as a simulation is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["command"]

_PATH = click.Path(path_type=Path)
_COUNT, _SHARE, _SECONDS = click.IntRange(1), click.FloatRange(0.0, 1.0), click.FloatRange(0.0, min_open=True)
PROCESSES = ("trace", "poisson", "gamma", "onoff", "surge")
LENGTHS = ("max", "min", "free")


@click.command("bench", context_settings={"show_default": True})
@click.option("--url", default="127.0.0.1:8001", help="gRPC address of the server.")
@click.option("--model", help="Model name; by default the one of the launch at this address.")
@click.option("--label", default="live", help="What to call this run in results.")
@click.option("--trace", type=_PATH, help="CSV, JSONL or ServeGen's JSON; without one all requests are alike.")
@click.option("--columns", help="Of another CSV: time_s=NAME or time_ms=NAME, prompt=NAME, output=NAME, cached=NAME.")
@click.option("--rows", type=_COUNT, help="Only so many requests of the trace.")
@click.option("--skip-rows", default=0, type=click.IntRange(0), help="Leave out so many at its start.")
@click.option("--rate", type=_SECONDS, help="Requests a second.")
@click.option("--speed", type=_SECONDS, help="Times as fast as the trace was recorded.")
@click.option("--duration-s", type=_SECONDS, help="Stop sending after so long; 60 s without a trace.")
@click.option("--prompt-tokens", default=1024, type=_COUNT, help="Without a trace.")
@click.option("--output-tokens", default=128, type=_COUNT, help="Without a trace, and on the ladder.")
@click.option("--slo", type=_PATH, help="Classes, their shares and targets; else 1 s + 0.25 ms/token and 50 ms.")
@click.option("--arrivals", "process", default="trace", type=click.Choice(PROCESSES), help="Gaps between requests.")
@click.option("--gap-cv", default=3.0, type=_SECONDS, help="Standard deviation over mean, for gamma.")
@click.option("--surge-factor", default=3.0, type=_SECONDS, help="Rate of a surge, or of `on` over `off`.")
@click.option("--surge-s", default=60.0, type=_SECONDS, help="Length of a surge, or of on and off together.")
@click.option("--tenants", help="Shares of the requests, as a=10,b=1.")
@click.option("--bundle", type=_PATH, help="Bundle that is served: prompts are then token ids of its vocabulary.")
@click.option(
    "--lengths",
    default="max",
    type=click.Choice(LENGTHS),
    help="How answers get their length: by max_tokens, by min_tokens alone (exact with the synthetic engine, and "
    "unknown to the scheduler), or not at all.",
)
@click.option("--retries", default=0, type=click.IntRange(0, 100), help="Times that a client comes back.")
@click.option("--ignore-hint", is_flag=True, help="It comes back after one second, whatever it was told.")
@click.option("--patience-s", type=_SECONDS, help="Clients hang up without a first token for so long.")
@click.option("--cancel-share", default=0.0, type=_SHARE, help="Part of the requests that are given up.")
@click.option("--cancel-after-s", default=1.0, type=_SECONDS, help="So long after they were sent.")
@click.option("--drain-s", default=120.0, type=_SECONDS, help="Wait so long for answers after the last request.")
@click.option("--timeout-s", default=120.0, type=_SECONDS, help="Give a request up when nothing arrives for so long.")
@click.option("--seed", default=0, type=click.IntRange(0), help="Of gaps, classes, tenants and prompts.")
@click.option("--knee", is_flag=True, help="Raise the rate until fewer than --share of what is offered is good.")
@click.option("--share", default=0.9, type=_SHARE, help="For --knee.")
@click.option("--ladder", is_flag=True, help="Prompts of 1024, 2048, 4096 tokens by 4, 8, 16, 32 clients at once.")
@click.option("--rounds", default=4, type=_COUNT, help="Requests of each client in each cell of the ladder.")
@click.option("--compare", nargs=2, type=_PATH, metavar="A.json B.json", help="Send nothing; lay two results together.")
@click.option("--report", type=_PATH, help="Write a self-contained HTML page here.")
@click.option("--json", "as_json", is_flag=True, help="Print the runs as JSON, with the fields of `simulate`.")
def command(
    knee: bool,
    share: float,
    ladder: bool,
    rounds: int,
    compare: tuple[Path, Path] | None,
    report: Path | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Load a running server and say what it was worth.

    Requests are sent at their time whatever became of those before, and every latency counts from that time. The
    client's own delay is measured too: where it dominates, the run is called not valid and the exit status is 1.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from seekserve.bench.session import Question

    if compare is not None:
        return _compare(*compare, as_json=as_json)
    if ladder and (knee or report is not None):
        from seekserve.errors import InputError

        raise InputError("--ladder has neither a knee nor a page; leave out --knee and --report")
    question = Question(**flags)
    if ladder:
        return _ladder(question, rounds, as_json=as_json)
    return _load(question, share if knee else None, report, as_json=as_json)


def _load(question: Any, share: float | None, report: Path | None, *, as_json: bool) -> int:
    from seekserve.bench.page import live_page
    from seekserve.bench.results import result_text, results_json
    from seekserve.bench.session import measure_once, search_knee
    from seekserve.output import write_files

    progress = _progress()
    if share is None:
        found, results, more = None, [measure_once(question, progress)], {}
    else:
        found, results = search_knee(question, share=share, progress=progress)
        more = {"knee": {"rate_rps": found.rate_rps, "broke_at_rps": found.broke_at_rps, "tried": list(found.tried)}}
    progress("")
    if report is not None:
        write_files(report.parent, {report.name: live_page(results, found)})
    if as_json:
        click.echo(results_json(results, **more))
    else:
        click.echo("\n\n".join(map(result_text, results)))
        if found is not None and share is not None:
            click.echo("\n" + found.text(share))
    return 0 if all(result.lag.is_valid for result in results) else 1


def _ladder(question: Any, rounds: int, *, as_json: bool) -> int:
    from seekserve.bench.ladder import ladder_text
    from seekserve.bench.session import climb_ladder
    from seekserve.output import json_text

    progress = _progress()
    cells = climb_ladder(question, rounds=rounds, progress=progress)
    progress("")
    click.echo(json_text({"ladder": [cell.to_json() for cell in cells]}) if as_json else ladder_text(cells))
    return 0


def _compare(a: Path, b: Path, *, as_json: bool) -> int:
    from seekserve.bench.compare import compare_text, comparison, read_runs
    from seekserve.output import json_text

    pairs = comparison(read_runs(a), read_runs(b))
    if as_json:
        click.echo(json_text({"pairs": [{"run": name, "a": one, "b": two} for name, one, two in pairs]}))
    else:
        click.echo(f"A: {a}\nB: {b}\n{compare_text(pairs)}")
    return 0


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
