"""What is made of results: text, JSON, the page and its charts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from seekserve.simulate.html import page, table
from seekserve.simulate.knees import knees
from seekserve.simulate.page import sweep_page
from seekserve.simulate.report import sweep_json, sweep_text
from seekserve.simulate.svg import Series, chart, ticks
from seekserve.simulate.sweep import Case, Result, simulate


def with_attainment(result: Result, offered_rps: float, attainment: float, speed: float) -> Result:
    case = replace(result.case, load=replace(result.case.load, speed=speed))
    figures = replace(result.figures, offered_rps=offered_rps, attainment=attainment)
    return replace(result, case=case, figures=figures)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(1.0, 1.0), (2.0, 0.8)], (1.5, False)),
        ([(1.0, 0.95), (2.0, 0.91)], (2.0, True)),
        ([(1.0, 0.89), (2.0, 0.99)], (math.nan, False)),
        ([(2.0, 0.5), (1.0, 0.9)], (1.0, False)),
    ],
)
def test_the_knee_is_where_attainment_falls_below(
    points: list[tuple[float, float]], expected: tuple[float, bool], make_case: Callable[..., Case]
) -> None:
    one = simulate(make_case("paced"))
    found = knees([with_attainment(one, x, y, x) for x, y in points])["made", "paced"]
    assert found == pytest.approx(expected, nan_ok=True)


def test_text_and_json_name_every_run_and_the_knees(make_case: Callable[..., Case]) -> None:
    results = [
        simulate(make_case(policy, speed=speed, seed=seed))
        for policy in ("paced", "fcfs")
        for speed in (1.0, 12.0)
        for seed in (0, 1)
    ]
    text = sweep_text(results)
    for words in ("made: test; 2 seeds", "paced", "fcfs", "goodput/s", "TPOT p99 ms", "load up to which 90 %"):
        assert words in text
    data = json.loads(sweep_json(results))
    assert len(data["runs"]) == 8
    wanted = {
        *("policy", "trace", "speed", "seed", "offered_rps", "goodput_rps", "attainment", "shed_ratio"),
        *("wasted_tokens", "ttft_p50_s", "ttft_p99_s", "tpot_p99_ms", "longest_wait_s", "shed_by_bucket"),
    }
    assert all(wanted <= {*run} for run in data["runs"])
    assert {(knee["policy"], knee["trace"]) for knee in data["knees"]} == {("paced", "made"), ("fcfs", "made")}


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe"):
            self.found.append(tag)
        self.found += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "onload")]


def test_the_page_gives_the_answer_first_and_asks_for_nothing_else(make_case: Callable[..., Case]) -> None:
    results = [
        simulate(make_case(policy, speed=speed, sample_every_s=1.0))
        for policy in ("paced", "fcfs")
        for speed in (1.0, 9.0)
    ]
    html = sweep_page(results)
    parser = Links()
    parser.feed(html)
    assert parser.found == []
    assert "http" not in html
    assert html.index("90 % of urgent requests meet their targets") < html.index("<svg")
    charts = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(charts) == 9
    for each in charts:
        ElementTree.fromstring(each)
    for words in ("requests/s, all classes", "milliseconds", "time [s]", "Rung of the pressure ladder", "not measured"):
        assert words in html


def test_names_are_escaped() -> None:
    evil = "<b>&"
    for text in (
        chart(evil, evil, evil, [Series(evil, [(0.0, 1.0)])]),
        page(evil, [evil], []),
        table([evil], [[evil]]),
    ):
        assert "<b>" not in text
        assert "&lt;b&gt;&amp;" in text


def test_a_line_breaks_where_there_is_no_number() -> None:
    text = chart("t", "x", "y", [Series("s", [(0.0, 1.0), (1.0, math.nan), (2.0, 1.0), (3.0, math.inf), (4.0, 2.0)])])
    path = re.search(r'<path d="([^"]*)"', text)
    assert path is not None
    assert path.group(1).count("M") == 3
    ElementTree.fromstring(chart("empty", "x", "y", []))


@pytest.mark.parametrize(
    ("high", "expected"),
    [
        (1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (13.0, [0.0, 5.0, 10.0, 15.0]),
        (0.0, [0.0, 1.0]),
        (math.nan, [0.0, 1.0]),
        (600.0, [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0]),
    ],
)
def test_ticks_are_round_and_reach_the_end(high: float, expected: list[float]) -> None:
    assert ticks(0.0, high) == pytest.approx(expected)
