"""The operator's tools on one real tritonserver under load: what they show, what they find when something goes wrong,
what they gather and what they try."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.live.conftest import Deployment, Server

from seekserve.client import Client, GenerateRequest
from seekserve.errors import SeekserveError
from seekserve.monitor.diagnose import diagnose
from seekserve.monitor.soak import stand
from seekserve.monitor.sources import scrape

MODEL = stand.MODEL_NAME
CLIENTS = 4
SLO = """\
classes:
  interactive: {share: 0.7, ttft_ms: 3000, ttft_ms_per_token: 1, tpot_ms: 200}
  offline: {share: 0.3, e2e_ms: 300000}
"""


class Place:
    """A server with the synthetic engine, clients that never rest, and a file that brings faults about."""

    def __init__(self, server: Server, faults: Path) -> None:
        self.server = server
        self.metrics = str(server.ready["metrics_url"])
        self._faults = faults

    def strike(self, **fault: object) -> None:
        new = self._faults.with_suffix(".new")
        new.write_text(json.dumps(fault))
        new.rename(self._faults)

    def wait_metric(self, name: str, least: float, **labels: str) -> None:
        deadline = time.monotonic() + 60
        while self.value(name, **labels) < least:
            assert time.monotonic() < deadline, f"{name} does not come to {least}:\n{self.server.report()}"
            time.sleep(0.2)

    def value(self, name: str, **labels: str) -> float:
        with contextlib.suppress(KeyError):
            return self.server.metric_sum(name, MODEL, **labels)
        return 0.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("operations")
    stand.prepare(folder, ["paced"])
    faults, over = folder / "faults.json", threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEKSERVE_SYNTHETIC_FAULTS", str(faults))
        made = Deployment(folder=folder, repository=folder / "repository-paced", backends=folder / "backends")
        server = Server(made)

    def ask(n: int) -> None:
        with Client(server.grpc, MODEL) as client:
            while not over.is_set():
                with contextlib.suppress(SeekserveError):
                    client.generate(GenerateRequest(prompt=f"do not tell {n}", max_tokens=20))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        place = Place(server, faults)
        place.wait_metric("seekserve_requests_ended_total", 30.0, terminal="finished")
        yield place
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
        code = server.stop()
    assert code == 0, server.report()


def run(*arguments: object, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "seekserve", *map(str, arguments)],
        capture_output=True, text=True, timeout=240, env={**os.environ, **env},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


def test_a_drill_on_a_server_of_its_own() -> None:
    code, out = run("soak", "--size", "drill", "--drill", "raise", "--duration-s", 24, "--rate", 1.5, "--json")
    body = json.loads(out)
    (phase,) = body["phases"]
    checks = {check["name"]: check["ok"] for check in phase["checks"]}
    assert checks["every request got an answer"]
    assert checks["served before the fault"]
    assert phase["facts"]["launch acted after"] == "it had not to"
    assert code == (0 if body["passed"] else 1)


def test_top_shows_what_goes_on(place: Place, tmp_path: Path) -> None:
    code, out = run("top", "--pid-file", place.server.record, "--once", "--json")
    body = json.loads(out)
    (model,) = body["models"]
    assert code == 0
    assert model["model"] == MODEL
    assert model["level"] in ("ok", "busy"), model["verdict"]
    assert model["engine"] == "synthetic"
    assert 0 < model["running"] <= CLIENTS
    assert model["output_tokens_per_s"] > 0.0
    assert model["times_since_start"]["TTFT"]["interactive"]["count"] >= 30
    _, text = run("top", "--url", place.metrics, COLUMNS="80")
    assert f"{MODEL} at " in text.splitlines()[0]
    assert all(len(line) <= 80 for line in text.splitlines())
    dump = tmp_path / "top.json"
    dump.write_text(out)
    code, said = run("diagnose", "--dump", dump, "--json")
    assert json.loads(said)["scrapes"] == body["scrapes"]


def test_nothing_is_wrong_with_a_calm_server(place: Place) -> None:
    code, out = run("diagnose", "--pid-file", place.server.record, "--window-s", 4, "--json")
    body = json.loads(out)
    # A busy machine may really be slow to form batches; nothing else may be made of it.
    assert {each["id"] for each in body["findings"] if each["kind"] in ("fault", "overload")} <= {"step-hiccups"}, out
    assert code == (1 if body["is_wrong"] else 0)


def test_a_slow_engine_is_found(place: Place) -> None:
    place.strike(fault="slow", factor=3, for_s=40)
    place.wait_metric("seekserve_step_bias_ratio", 1.6)
    code, out = run("diagnose", "--url", place.metrics, "--window-s", 4, "--json")
    found = {each["id"]: each for each in json.loads(out)["findings"]}
    assert (code, "slow-engine" in found) == (1, True), out
    assert found["slow-engine"]["kind"] == "fault"
    place.strike(fault="slow", factor=1, for_s=0)


def test_requests_that_fail_are_found_and_gathered(place: Place, tmp_path: Path) -> None:
    before = scrape(place.metrics)
    failed = place.value("seekserve_requests_ended_total", terminal="failed")
    place.wait_metric("seekserve_running_requests", 1.0)
    place.strike(fault="lose_kv")
    place.wait_metric("seekserve_requests_ended_total", failed + 1.0, terminal="failed")
    findings = [each.id for each in diagnose([before, scrape(place.metrics)]).findings]
    assert "failing" in findings
    target = tmp_path / "report.tar.gz"
    code, _ = run("collect", "--pid-file", place.server.record, "--interval-s", 1, "--out", target)
    assert code == 0
    with tarfile.open(target) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
        texts = [tar.extractfile(name).read().decode() for name in tar.getnames()]  # type: ignore[union-attr]
    for name in ("metrics/1.txt", "metrics/2.txt", "logs/server.log", "launch/record.json", "launch/processes.json",
                 f"repository/{MODEL}/config.pbtxt", f"repository/{MODEL}/policy.json", "bundles/0-bundle/bundle.json",
                 "versions.json", "machine/doctor.json"):  # fmt: skip
        assert name in names
    everything = "\n".join(texts)
    assert "its KV blocks were lost (drill)" in everything
    assert "do not tell" not in everything
    keys = [
        argument.rpartition("=")[2]
        for process in psutil.Process(place.server.process.pid).children(recursive=True)
        for argument in process.cmdline()
        if "seekserve-admin-key" in argument
    ]
    assert keys
    assert not [key for key in keys if key in everything]


def test_a_smoke_is_passed(place: Place, tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text(SLO)
    _, out = run(
        "soak", "--slo", slo, "--pid-file", place.server.record, "--rate", 1, "--duration-s", 8, "--prompt-tokens", 50,
        "--output-tokens", 10, "--json",
    )  # fmt: skip
    checks = {check["name"]: check for check in json.loads(out)["phases"][0]["checks"]}
    del checks["the measurement is valid"]  # this machine may be busy with other tests
    assert all(check["ok"] for check in checks.values()), checks
    assert "offered" in checks["the server's books balance"]["measured"]


@pytest.mark.needs_debian
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="not installed: prometheus (Debian)")
def test_the_same_is_found_in_what_prometheus_stored(place: Place, tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    target = place.metrics.removeprefix("http://").removesuffix("/metrics")
    config = {"scrape_configs": [{"job_name": "t", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    process = subprocess.Popen(
        ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        place.strike(fault="slow", factor=3, for_s=40)
        place.wait_metric("seekserve_step_bias_ratio", 1.6)
        query = f"http://127.0.0.1:{port}/api/v1/query?query=count_over_time(seekserve_rung[1m])"
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                result = json.loads(urllib.request.urlopen(query, timeout=5).read())["data"]["result"]
                if result and float(result[0]["value"][1]) >= 5:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.5)
        code, out = run("diagnose", "--prometheus", f"127.0.0.1:{port}", "--window-s", 5, "--selector", 'job="t"')
        assert (code, "(slow-engine)" in out) == (1, True), out
    finally:
        process.terminate()
        process.wait(30)
