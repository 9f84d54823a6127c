"""`seekserve top`: looks at servers again and again and draws what it sees; or once, as text or JSON."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seekserve.errors import MissingDependency, SeekserveError, ServerError

from .history import History, Seen
from .sources import scrape
from .top_view import screen

if TYPE_CHECKING:
    from rich.console import Console

    from .reading import Scrape

__all__ = ["look", "make_console", "once_json", "show_once", "watch"]


def look(urls: Sequence[str], take: Callable[[str], Scrape] = scrape) -> tuple[list[Scrape], list[str]]:
    """(what answered, a sentence for each that did not)"""
    found, problems = [], []
    for url in urls:
        try:
            found.append(take(url))
        except SeekserveError as error:
            problems.append(error.message)
    return found, problems


def make_console(width: int | None = None) -> Console:
    """Plain where it is no terminal or NO_COLOR is set."""
    try:
        from rich.console import Console
    except ImportError:
        raise MissingDependency(
            "seekserve top draws with rich, which is not installed", hint="pip install rich, or use --once --json"
        ) from None
    return Console(width=width, highlight=False, soft_wrap=False)


def show_once(console: Console, history: History, urls: Sequence[str], *, interval_s: float) -> list[Seen]:
    """Two looks, one picture. Raises ServerError when nobody answers."""
    seen, problems = _two_looks(history, urls, interval_s)
    _draw(console, seen, problems)
    return seen


def once_json(history: History, urls: Sequence[str], *, interval_s: float) -> dict[str, Any]:
    """The same as data, with the scrapes it was made from, which `diagnose --dump` takes."""
    seen, problems = _two_looks(history, urls, interval_s)
    return {
        "models": [
            {
                "verdict": each.verdict.text,
                "level": each.verdict.level.name.lower(),
                **each.glance.to_json(),
                "refused_lately": [{"time_s": r.time_s, "what": r.what, "count": r.count} for r in each.refusals],
            }
            for each in seen
        ],
        "no_answer": problems,
        "scrapes": [each.to_json() for each in history.scrapes],
    }


def watch(console: Console, history: History, urls: Sequence[str], *, interval_s: float) -> None:
    """Until `q` or Ctrl-C. A server that goes away is shown as that, and looked for again."""
    from rich.live import Live

    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            began_s = time.monotonic()
            found, problems = look(urls)
            seen = history.add(found)
            live.update(_picture(console, seen, problems), refresh=True)
            left_s = max(0.05, interval_s - (time.monotonic() - began_s))
            if pressed(left_s) in ("q", "Q", "\x03", "\x1b"):
                return


def _two_looks(history: History, urls: Sequence[str], interval_s: float) -> tuple[list[Seen], list[str]]:
    found, _ = look(urls)
    history.add(found)
    time.sleep(interval_s)
    found, problems = look(urls)
    if not found:
        raise ServerError("; ".join(problems), hint="is a server up? `seekserve status` says what was launched here")
    return history.add(found), problems


def _draw(console: Console, seen: Sequence[Seen], problems: Sequence[str]) -> None:
    console.print(_picture(console, seen, problems))


def _picture(console: Console, seen: Sequence[Seen], problems: Sequence[str]) -> Any:
    is_ascii = not (console.encoding or "").lower().startswith("utf")
    clock = time.strftime("%H:%M:%S")
    return screen(seen, problems, width=console.width, clock=clock, is_ascii=is_ascii)


def _no_key(timeout_s: float) -> str:
    time.sleep(timeout_s)
    return ""


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for a key; it only waits where standard input is no terminal."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(timeout_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        return os.read(descriptor, 1).decode("utf-8", "replace") if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
