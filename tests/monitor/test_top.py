"""The verdict comes first and is the worst that holds; what is drawn is what is known, at any width."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.monitor.exposition import Exposition
from tests.monitor.simulated import EPOCH_S, arrivals_at, scrapes

from seekserve.errors import ServerError
from seekserve.monitor.history import History, Seen
from seekserve.monitor.reading import Scrape, parse_text, scrape_of
from seekserve.monitor.top import look
from seekserve.monitor.top_view import screen
from seekserve.monitor.verdict import Level
from seekserve.monitor.words import count, rate, seconds


def seen_of(*looks: Callable[[Exposition], object], pause_s: float = 2.0) -> Seen:
    history = History()
    for n, said in enumerate(looks):
        made = Exposition().set("flush_timestamp_seconds", EPOCH_S + n * pause_s)
        said(made)
        seen = history.add([scrape_of(parse_text(made.text()), server="h:1", time_s=EPOCH_S + n * pause_s)])
    return seen[0]


def calm(e: Exposition) -> Exposition:
    e.set("requests_offered_total", 9).set("running_requests", 1).set("pressure_ratio", 0.4).set("rung", 0)
    return e.set("requests_refused_total", 0, "offline", "overloaded", "offline_full")


@pytest.mark.parametrize(
    ("level", "text", "change"),
    [
        (Level.OK, "serving, pressure 0.40, nothing shed", lambda e: e),
        (Level.OK, "idle, pressure 0.40, nothing shed", lambda e: e.set("running_requests", 0)),
        (Level.BUSY, "busy, pressure 0.90, rung 1, nothing shed",
         lambda e: e.set("pressure_ratio", 0.9).set("rung", 1)),
        (Level.SHEDDING, "shedding offline: pressure 0.40, rung 0, 2.00 refused/s (offline full)",
         lambda e: e.set("requests_refused_total", 4, "offline", "overloaded", "offline_full")),
        (Level.FAULT, "taking no requests: draining, 3.00 refused/s",
         lambda e: e.set("requests_refused_total", 6, "interactive", "not_serving", "draining")),
        (Level.FAULT, "requests fail: 1.00/s in the engine",
         lambda e: e.set("requests_ended_total", 2, "interactive", "failed")),
        (Level.FAULT, "breaker open: the engine failed requests; new work is refused",
         lambda e: e.set("breaker_state", 1.0)),
        (Level.FAULT, "STALLED: no step or token for 12 s", lambda e: e.set("stream_silence_seconds", 12.0)),
    ],
)  # fmt: skip
def test_the_verdict_is_the_worst_that_holds(level: Level, text: str, change: Callable[[Exposition], object]) -> None:
    verdict = seen_of(calm, lambda e: change(calm(e))).verdict
    assert (verdict.level, verdict.text) == (level, text)


def test_a_process_that_writes_no_numbers_is_worst_of_all() -> None:
    def dead(e: Exposition) -> object:
        return calm(e).set("flush_timestamp_seconds", EPOCH_S - 60.0).set("breaker_state", 1.0)

    verdict = seen_of(dead, dead).verdict
    assert verdict.text == "NOT SERVING: its process has written no numbers for 62 s"


def test_it_says_since_when_only_where_it_saw_it_begin() -> None:
    def shed(n: float, name: str = "offline") -> Callable[[Exposition], object]:
        return lambda e: calm(e).set("requests_refused_total", n, name, "overloaded", "rung")

    at_once = seen_of(shed(0), shed(4), shed(8), shed(12))
    assert at_once.verdict.since_s is None
    later = seen_of(shed(0), shed(0), shed(4), shed(8), shed(12), pause_s=10.0)
    assert later.verdict.text.startswith("shedding offline since 20 s: pressure 0.40")
    assert [each.count for each in later.refusals] == [4.0, 4.0, 4.0]


def drawn(seen: list[Seen], *, width: int, is_ascii: bool = False, problems: tuple[str, ...] = ()) -> list[str]:
    file = io.StringIO()
    console = Console(width=width, file=file, force_terminal=False, highlight=False)
    console.print(screen(seen, problems, width=width, clock="03:00:00", is_ascii=is_ascii))
    return file.getvalue().splitlines()


@pytest.fixture(scope="module")
def looks() -> list[Scrape]:
    arrivals = arrivals_at(4, 20) + arrivals_at(40, 40, start_s=20.0)
    return scrapes(arrivals, until_s=60.0, every_s=2.0)


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("is_ascii", [False, True])
def test_everything_is_shown_within_the_width(looks: list[Scrape], width: int, is_ascii: bool) -> None:
    history = History()
    for each in looks:
        seen = history.add([each])
    lines = drawn(seen, width=width, is_ascii=is_ascii)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= 48
    text = "\n".join(lines)
    assert lines[0].lstrip().startswith("!! chat at h:8002: shedding" if is_ascii else "▼ chat at h:8002: shedding")
    for part in ("offline", "interactive", "0-1k", "arrive", "refused", "running", "pressure", "rung", "TTFT", "P99",
                 "reserved", "offline full"):  # fmt: skip
        assert part in text
    assert "\x1b" not in text
    assert text.isascii() is is_ascii


def test_of_several_the_worst_is_drawn_and_all_are_listed() -> None:
    history = History()
    for n in range(2):
        well, ill = calm(Exposition(model="well")), calm(Exposition(model="ill")).set("breaker_state", 1.0)
        seen = history.add(
            [
                scrape_of(parse_text(made.text()), server=server, time_s=EPOCH_S + 2.0 * n)
                for made, server in ((well, "a:1"), (ill, "b:1"))
            ]
        )
    lines = drawn(seen, width=80, problems=("no metrics at http://c:1/metrics: nobody answers",))
    assert "c:1" in lines[0]
    assert "ill at b:1: breaker open" in lines[1]
    assert "well at a:1: serving" in "\n".join(lines)
    assert any("OPEN" in line for line in lines), "the worst is drawn"


def test_what_is_unknown_is_a_dash_and_what_never_came_is_said() -> None:
    text = "\n".join(drawn([seen_of(lambda e: e, lambda e: e)], width=80))
    assert "none yet" in text
    assert "pressure -" in " ".join(text.split())
    assert "\n".join(drawn([], width=80)).startswith("no model of the seekserve backend")


def test_servers_that_do_not_answer_are_told_beside_those_that_do() -> None:
    def take(url: str) -> Scrape:
        if "b" in url:
            raise ServerError(f"{url}: nobody answers")
        return Scrape(server=url, time_s=1.0)

    found, problems = look(["a", "b"], take)
    assert ([each.server for each in found], problems) == (["a"], ["b: nobody answers"])


@settings(deadline=None)
@given(st.floats(-1e12, 1e12))
def test_numbers_are_short(value: float) -> None:
    assert len(count(value)) <= 11
    assert len(rate(abs(value) % 1e9)) <= 10
    assert len(seconds(abs(value) % 1e8)) <= 10


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0 s"), (0.000123, "0.12 ms"), (0.0231, "23.1 ms"), (0.9999, "1 s"), (1.5, "1.5 s"),
     (300.0, "5 min"), (float("inf"), "never")],
)  # fmt: skip
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text
    assert json.dumps(text)
