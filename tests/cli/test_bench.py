"""`seekserve bench` as a user sees it: exit code and both streams, against a scripted server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from fake_server import Running, chunk, error

from seekserve_backend.contract.refusal import ErrorCode, ErrorLine

SLO = "classes:\n  fast: {share: 0.5, ttft_ms: 1000}\n  slow: {share: 0.5, e2e_ms: 60000}\n"
TRACE = "t,p,o\n" + "".join(f"{n / 10},{20 + n},3\n" for n in range(10))


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    running.triton.script = lambda _: iter([chunk("a"), chunk("b", final=True, finish="length", tokens=3)])
    yield running
    running.drop()


def run(tmp_path: Path, *args: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "seekserve", "bench", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    return done.returncode, done.stdout, done.stderr


def files(tmp_path: Path) -> tuple[Path, Path]:
    slo, trace = tmp_path / "slo.yaml", tmp_path / "trace.csv"
    slo.write_text(SLO)
    trace.write_text(TRACE)
    return slo, trace


def test_a_trace_is_sent_and_judged(server: Running, tmp_path: Path) -> None:
    slo, trace = files(tmp_path)
    code, out, err = run(
        tmp_path, "--url", server.url, "--model", "m", "--trace", trace, "--columns", "time_s=t,prompt=p,output=o",
        "--slo", slo, "--speed", "2", "--label", "mine", "--report", tmp_path / "page.html", "--json",
    )  # fmt: skip
    (only,) = json.loads(out)["runs"]
    assert code == (0 if only["live"]["is_valid"] else 1), err
    assert (only["policy"], only["trace"], only["speed"], only["attainment"]) == ("mine", "trace", 2.0, 1.0)
    assert only["live"]["requests"] == 10
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
    inputs = [call.inputs() for call in server.triton.calls]
    classes = {each["request_class"][2][4:] for each in inputs}
    assert classes == {b"fast", b"slow"}
    assert all(each["stream"][2] == bytes([each["request_class"][2][4:] == b"fast"]) for each in inputs)


def test_without_a_trace_all_requests_are_alike_and_of_the_default_class(server: Running, tmp_path: Path) -> None:
    code, out, err = run(
        tmp_path, "--url", server.url, "--model", "m", "--rate", 20, "--duration-s", 1, "--prompt-tokens", 5,
        "--output-tokens", 3, "--lengths", "free",
    )  # fmt: skip
    assert code in (0, 1), err
    assert "attainment 1.000" in out
    assert len(server.triton.calls) == 21
    assert all({"request_class", "min_tokens"}.isdisjoint(call.inputs()) for call in server.triton.calls)


def test_the_knee_is_searched_for(server: Running, tmp_path: Path) -> None:
    server.triton.script = lambda _: iter(
        [error(ErrorLine(code=ErrorCode.OVERLOADED, reason="full", retry_after_ms=100).to_line())]
    )
    flags = ("--url", server.url, "--model", "m", "--rate", 3000, "--duration-s", 0.1, "--knee", "--json")
    code, out, err = run(tmp_path, *flags)
    data = json.loads(out)
    assert code in (0, 1), err
    assert data["knee"]["rate_rps"] is None
    assert len(data["knee"]["tried"]) == len(data["runs"]) > 1


def test_the_ladder_prints_a_line_for_each_cell(server: Running, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "--url", server.url, "--model", "m", "--ladder", "--rounds", 1)
    assert code == 0, err
    assert len(out.splitlines()) == 13
    assert "prompt 4096, 32 at once" in err or "prompt 1024, 4 at once" in err


def test_two_results_are_compared_without_a_server(tmp_path: Path) -> None:
    for name, goodput in (("a.json", 2.0), ("b.json", 3.0)):
        (tmp_path / name).write_text(json.dumps({"runs": [{"policy": "p", "goodput_rps": goodput}]}))
    code, out, err = run(tmp_path, "--compare", tmp_path / "a.json", tmp_path / "b.json")
    assert (code, err) == (0, "")
    assert "1.500" in out


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--rate", "2", "--speed", "2"), 2, "--rate and --speed"),
        (("--speed", "2"), 2, "--speed is relative to a trace"),
        (("--trace", "none.csv"), 2, "none.csv"),
        (("--slo", "none.yaml"), 2, "none.yaml"),
        (("--bundle", "none"), 2, "tokenizer.json"),
        (("--ladder", "--knee"), 2, "--ladder"),
        (("--arrivals", "steady"), 2, "steady"),
        (("--compare", "none.json", "none.json"), 2, "none.json"),
        (("--url", "127.0.0.1:1", "--rate", "10", "--duration-s", "0.3", "--timeout-s", "2"), 4, "127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, args: tuple[str, ...], code: int, message: str) -> None:
    done = run(tmp_path, *args, *(("--model", "m") if "--url" in args else ()))
    assert done[0] == code, done
    assert message in done[2]
    assert "Traceback" not in done[2]
