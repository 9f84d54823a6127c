"""`seekserve evaluate`: how often a build answers right, against another one. Exit 3 when the drop is too large."""

from __future__ import annotations

import os
import sys

import click

__all__ = ["command"]


@click.command("evaluate")
@click.argument("target")
@click.argument("other", required=False)
@click.option(
    "--tasks",
    multiple=True,
    default=("additions",),
    show_default=True,
    metavar="NAME|FILE",
    help="Questions: one that ships (additions, phrasings, ...) or a JSON Lines file; may be given more than once.",
)
@click.option(
    "--match",
    type=click.Choice(["exact", "contains", "regex"]),
    default="exact",
    show_default=True,
    help="When an answer is right: equal to `expected` without the white space around it, containing it, or matching.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Ask only the first so many questions of each file.")
@click.option(
    "--max-drop",
    type=click.FloatRange(min=0, max=100),
    help="Points that TARGET may lose against OTHER over all questions. [default: 1.5]",
)
@click.option("--errors", is_flag=True, help="Also measure the rounding of weights (against OTHER) and KV latents.")
@click.option("--baseline", metavar="CHECKPOINT", help="Weights that --errors compares with, instead of OTHER's.")
@click.option("--model", metavar="NAME", help="Model of the server; by default the only one there.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=16, show_default=True, help="Questions in flight at once."
)
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=256, show_default=True, help="Longest answer, in tokens."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    target: str,
    other: str | None,
    tasks: tuple[str, ...],
    match: str,
    limit: int | None,
    max_drop: float | None,
    errors: bool,
    baseline: str | None,
    model: str | None,
    concurrency: int,
    max_tokens: int,
    as_json: bool,
) -> None:
    """Measure how often TARGET answers right, alone or against OTHER.

    TARGET is the build in question and OTHER what it is measured against, for example the same model in bf16: each is
    a bundle of the reference engine, which then runs in this process, or the gRPC address HOST:PORT of a running
    server. A task file has one JSON object a line with `messages` or `prompt`, and `expected`. Answers are greedy.

    Exit status: 2 bad input, 3 the drop exceeds --max-drop (the report is still printed), 4 server, 130 interrupted.
    """
    # gRPC's core writes a broken connection to stderr by itself; it is reported here, once, in words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from seekserve.evaluate import EvaluateRequest, evaluate
    from seekserve.evaluate.report import report_json, report_text
    from seekserve.evaluate.target import Asking
    from seekserve.output import json_text

    request = EvaluateRequest(
        target=target,
        other=other,
        tasks=tasks,
        match=match,
        limit=limit,
        model=model,
        asking=Asking(max_tokens=max_tokens, concurrency=concurrency),
        max_drop_points=max_drop,
        wants_errors=errors,
        baseline=baseline,
    )
    evaluation = evaluate(request, _Progress())
    click.echo(json_text(report_json(evaluation)) if as_json else report_text(evaluation))
    evaluation.judge()


class _Progress:
    """On stderr: one line that is rewritten on a terminal, a line for each tenth elsewhere."""

    def __init__(self) -> None:
        self._last = ("", -1)

    def __call__(self, what: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r  {what}: {done} of {total}", err=True, nl=done == total)
        elif self._last != (what, done * 10 // total):
            self._last = (what, done * 10 // total)
            click.echo(f"  {what}: {done} of {total}", err=True)
