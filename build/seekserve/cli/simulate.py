"""`seekserve simulate`: the scheduling core on a trace, against an engine in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

__all__ = ["command"]

_PATH = click.Path(path_type=Path)
_COUNT, _SHARE, _SECONDS = click.IntRange(1), click.FloatRange(0.0, 1.0), click.FloatRange(0.0, min_open=True)
PROCESSES = ("trace", "poisson", "gamma", "onoff", "surge")
ROUTERS = ("round-robin", "least-loaded", "prefix-aware")
DEFAULT_ENGINE = "DeepSeek-V3 / R1 FP8, 8 x H200, TP 8, EP 8"


@click.command("simulate", context_settings={"show_default": True})
@click.option("--trace", "traces", multiple=True, required=True, type=_PATH, help="CSV, JSONL or ServeGen's JSON.")
@click.option(
    "--slo", "slos", multiple=True, required=True, type=_PATH, help="What is promised: one file, or one each."
)
@click.option("--columns", help="Of another CSV: time_s=NAME or time_ms=NAME, prompt=NAME, output=NAME, cached=NAME.")
@click.option(
    "--policy",
    "policies",
    default="paced,fcfs",
    help="paced, fcfs, static:CAP:TIMEOUT_S, seed, seed:open, "
    "oracle (knows output lengths; a ceiling) or policy files, by comma.",
)
@click.option("--speed", "speeds", default="1", help="Times as fast as recorded, by comma.")
@click.option("--seeds", default=1, type=click.IntRange(1, 1000), help="Repeats, with other classes and gaps.")
@click.option("--rows", type=_COUNT, help="Only so many requests of each trace.")
@click.option("--skip-rows", default=0, type=click.IntRange(0), help="Leave out so many at its start.")
@click.option("--arrivals", "process", default="trace", type=click.Choice(PROCESSES), help="Gaps between requests.")
@click.option("--gap-cv", default=3.0, type=_SECONDS, help="Standard deviation over mean, for gamma.")
@click.option("--surge-factor", default=3.0, type=_SECONDS, help="Rate of a surge, or of `on` over `off`.")
@click.option("--surge-s", default=60.0, type=_SECONDS, help="Length of a surge, or of on and off together.")
@click.option("--tenants", help="Shares of the requests, as a=10,b=1.")
@click.option("--long-share", default=0.0, type=_SHARE, help="Part of the prompts that is made 32,768 tokens long.")
@click.option("--engine", default=DEFAULT_ENGINE, help="A step model of the catalogue, or a bundle's folder.")
@click.option("--controller", help="Another step model for the scheduler to believe in.")
@click.option("--no-model", is_flag=True, help="Give the scheduler no step model at all.")
@click.option("--kv-tokens", default=1_447_872, type=_COUNT, help="Size of the KV cache, for catalogue engines.")
@click.option("--max-batch-size", default=256, type=_COUNT, help="Requests at once, for catalogue engines.")
@click.option(
    "--capacity-policy",
    type=click.Choice(("GUARANTEED_NO_EVICT", "MAX_UTILIZATION")),
    help="When the cache is full: room for all of max_tokens is reserved, or requests are paused and read again.  "
    "[default: the bundle's, or GUARANTEED_NO_EVICT]",
)
@click.option("--slowdown", default=1.0, type=click.FloatRange(0.01, 100.0), help="Times slower than its model.")
@click.option("--slow-from", default=0.0, type=_SHARE, help="Part of the time after which it is slower.")
@click.option("--noise", default=0.0, type=_SHARE, help="Relative standard deviation of step times.")
@click.option("--stall-at-s", type=_SECONDS, help="The engine hangs once, at this second.")
@click.option("--stall-s", default=30.0, type=_SECONDS, help="For how long.")
@click.option("--fail-at-s", multiple=True, type=_SECONDS, help="The engine raises and loses everything; repeatable.")
@click.option("--draft-tokens", default=0, type=click.IntRange(0, 16), help="Speculated in each step (MTP).")
@click.option("--acceptance", default=0.7, type=_SHARE, help="Chance of each of them.")
@click.option("--no-prefix-reuse", is_flag=True, help="Treat every prompt as new.")
@click.option("--retries", default=0, type=click.IntRange(0, 100), help="Times that a client comes back.")
@click.option("--ignore-hint", is_flag=True, help="It comes back after one second, whatever it was told.")
@click.option("--patience-s", type=_SECONDS, help="Clients hang up without a first token for so long.")
@click.option("--replicas", default=1, type=click.IntRange(1, 4096), help="Engines, each with its own scheduler.")
@click.option("--router", default="least-loaded", type=click.Choice(ROUTERS), help="Who gets a request.")
@click.option("--jobs", default=1, type=click.IntRange(1, 64), help="Processes.")
@click.option("--report", type=_PATH, help="Write a self-contained HTML page here.")
@click.option("--json", "as_json", is_flag=True, help="Print the runs as JSON.")
def command(jobs: int, report: Path | None, as_json: bool, **flags: Any) -> None:
    """Replay traces against policies and say what each was worth.

    The scheduler is the very one that serves; the engine is a step model in virtual time. Nothing here is measured on a
    GPU: the catalogue's models are predictions, and --slowdown, --noise and --controller show how much hangs on them.
    """
    from seekserve.output import write_files
    from seekserve.simulate.ask import Question, cases_for
    from seekserve.simulate.page import sweep_page
    from seekserve.simulate.report import sweep_json, sweep_text
    from seekserve.simulate.sweep import run_all

    results = run_all(cases_for(Question(**flags, has_samples=report is not None)), jobs=jobs)
    if report is not None:
        write_files(report.parent, {report.name: sweep_page(results)})
    click.echo(sweep_json(results) if as_json else sweep_text(results))
