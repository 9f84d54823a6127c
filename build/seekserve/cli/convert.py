"""`seekserve convert`: bf16 -> FP8 blocks, or FP8 -> bf16."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from seekserve.convert.needs import Needs

__all__ = ["command"]


@click.command("convert")
@click.argument("checkpoint")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--to", "target", type=click.Choice(["fp8-block", "bf16"]), required=True, help="Precision of the output."
)
@click.option("--workers", type=click.IntRange(1, 256), help="Threads that convert. [default: one per core]")
@click.option("--resume", is_flag=True, help="Continue a conversion that was interrupted.")
@click.option("--verify", is_flag=True, help="Read the output again and report its errors against the source.")
@click.option("--dry-run", is_flag=True, help="Print what would be written and what it needs, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    checkpoint: str,
    out: Path,
    target: Literal["fp8-block", "bf16"],
    workers: int | None,
    resume: bool,
    verify: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Convert CHECKPOINT, a folder or the id of a model in the local Hugging Face cache, into the new folder OUT.

    To FP8 in blocks of 128 x 128 as DeepSeek releases it, or from FP8 to bf16. Until it is whole the output is called
    OUT.partial; a run that was interrupted is continued with --resume.
    """
    import psutil

    from seekserve.convert import ConvertRequest, convert

    request = ConvertRequest(
        checkpoint=checkpoint,
        out=out,
        target=target,
        workers=workers or os.cpu_count() or 1,
        resume=resume,
        verify=verify,
        dry_run=dry_run,
    )
    try:
        with _Bars() as bars:
            report = convert(request, memory_free_bytes=psutil.virtual_memory().available, listener=bars)
    except KeyboardInterrupt:
        click.echo("stopped; the finished shards are kept, continue with --resume", err=True)
        raise
    click.echo(report.json_text() if as_json else report.text())


class _Bars:
    """A progress bar on stderr for each stage, with the rate and the time left."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._lock = threading.Lock()
        self._started_s, self._done_bytes = 0.0, 0

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)

    def needs(self, needs: Needs) -> None:
        click.echo(f"needs: {needs}", err=True)

    def stage(self, name: str, total_bytes: int) -> Callable[[int], None]:
        self.__exit__()
        self._started_s, self._done_bytes = time.monotonic(), 0
        stream = sys.stderr
        self._bar = click.progressbar(length=total_bytes, label=name, file=stream, item_show_func=self._rate)
        self._bar.__enter__()
        return self._advance

    def _advance(self, count: int) -> None:
        with self._lock:
            self._done_bytes += count
            self._bar.update(count, self._done_bytes)

    def _rate(self, _done: object) -> str:
        from seekserve.output import bytes_text

        elapsed_s = time.monotonic() - self._started_s
        return f"{bytes_text(int(self._done_bytes / elapsed_s))}/s" if elapsed_s > 0 else ""
