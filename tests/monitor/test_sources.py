from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.monitor.exposition import Exposition

from seekserve.errors import InputError, ProtocolError, ServerError
from seekserve.monitor.reading import parse_text
from seekserve.monitor.sources import from_file, from_prometheus, scrape, scrape_some, with_scheme
from seekserve.monitor.window import windows_of

Answer = "tuple[int, bytes] | None"
TEXT = Exposition().set("running_requests", 2).set("queue_requests", 3, "interactive").text()


def answers(*given: tuple[int, bytes] | None) -> Callable[[str], tuple[int, bytes] | None]:
    left = list(given)
    return lambda url: left.pop(0) if len(left) > 1 else left[0]


def test_a_server_is_looked_at_several_times() -> None:
    pauses: list[float] = []
    found = scrape_some(
        ["http://a:1/metrics", "http://b:2/metrics"], looks=3, pause_s=2.5, sleep=pauses.append,
        get=answers((200, TEXT.encode())),
    )  # fmt: skip
    assert [each.server for each in found] == ["a:1", "b:2"] * 3
    assert pauses == [2.5, 2.5]


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [(None, ServerError, "nobody answers"), ((404, b""), ServerError, "HTTP 404"),
     ((200, b"[]"), ProtocolError, "no Prometheus metrics")],
)  # fmt: skip
def test_what_is_no_server_is_an_error(answer: tuple[int, bytes] | None, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        scrape("http://a:1/metrics", get=answers(answer))


@pytest.mark.parametrize(
    ("given", "url"),
    [("h:8002", "http://h:8002/metrics"), ("http://h:1/", "http://h:1/metrics"), ("https://h/x", "https://h/x")],
)
def test_addresses(given: str, url: str) -> None:
    assert with_scheme(given) == url


def matrix() -> list[dict[str, object]]:
    samples = parse_text(TEXT)
    return [
        {
            "metric": {"__name__": name, **labels, "instance": instance, "job": "triton"},
            "values": [[1000.0 + 5 * n, str(value + n)] for n in range(3)],
        }
        for instance in ("a:8002", "b:8002")
        for name, labels, value in samples
    ]


def test_what_prometheus_stored_becomes_scrapes() -> None:
    asked: list[str] = []

    def get(url: str) -> tuple[int, bytes]:
        asked.append(url)
        return 200, json.dumps({"status": "success", "data": {"result": matrix()}}).encode()

    found = from_prometheus("prom:9090", window_s=600.0, now_s=2000.0, selector='job="triton"', get=get)
    first, second = windows_of(found)
    assert (first.server, second.server, first.seconds) == ("a:8002", "b:8002", 10.0)
    assert first.now("queue_requests", **{"class": "interactive"}) == 5.0
    query = parse_qs(urlsplit(asked[0]).query)
    assert (query["start"], query["end"], query["step"]) == (["1400.000"], ["2000.000"], ["5.000"])
    assert query["query"][0].endswith(',job="triton"}')


@pytest.mark.parametrize(
    ("answer", "text"),
    [(None, "nobody answers"), ((200, b"<html>"), "does not answer as Prometheus"),
     ((400, b'{"status": "error", "error": "bad matcher"}'), "refused the query: bad matcher"),
     ((200, b'{"status": "success", "data": {"result": []}}'), "has no metric of seekserve")],
)  # fmt: skip
def test_a_prometheus_that_has_nothing_is_an_error(answer: tuple[int, bytes] | None, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        from_prometheus("prom:9090", window_s=600.0, get=answers(answer))


def test_files_of_earlier_looks(tmp_path: Path) -> None:
    raw, dump = tmp_path / "1.txt", tmp_path / "top.json"
    raw.write_text("# scraped http://a:1/metrics at 17.5\n" + TEXT)
    (one,) = from_file(raw)
    assert (one.server, one.time_s) == ("a:1", 17.5)
    dump.write_text(json.dumps({"scrapes": [one.to_json()]}))
    assert from_file(dump) == [one]


@pytest.mark.parametrize("text", ["", "{}", '{"scrapes": [{}]}', "[1]", '{"scrapes": 3}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match="holds no scrapes"):
        from_file(path)
    with pytest.raises(InputError, match="cannot be read"):
        from_file(tmp_path / "absent.json")
