"""The rendered monitoring files at work: the real Prometheus reads a loaded server, every panel of the dashboard has
data, and an engine that fails makes the right alert reach a webhook in the stated time."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.live.conftest import Deployment, Server, run_cli
from tests.monitor.prometheus_world import MISSING, Prometheus, Webhook, free_port, watching, webhook

from seekserve.client import Client, GenerateRequest
from seekserve.errors import Refused, SeekserveError
from seekserve.monitor.alertmanager import GROUP_WAIT_S
from seekserve.monitor.check import expressions
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle
from seekserve_backend.contract.step_model import StepModel
from seekserve_backend.engines.synthetic_faults import FAULTS_VARIABLE

pytestmark = [
    pytest.mark.needs_debian,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (scripts/ci_packages.sh)"),
]
SCRAPE_S = 2
# The backend's flush, a scrape, an evaluation, Alertmanager's wait for others of the group.
STATED_S = 1 + SCRAPE_S + SCRAPE_S + GROUP_WAIT_S
SLACK = 3.0
"""For a machine with other things to do."""
CLIENTS = 6
SETTINGS = """\
policy:
  kind: paced
  default_class: chat
  classes:
    chat: {{priority: 0, max_queue_requests: 100, deadline_ms: 60000, tpot_slo_ms: 1000}}
    offline: {{priority: 1, max_queue_requests: 100, deadline_ms: 60000, is_offline: true}}
  breaker: {{faults_in_a_row: 2}}
monitoring:
  targets: ["127.0.0.1:{metrics}"]
  alertmanagers: ["127.0.0.1:{alertmanager}"]
  scrape_interval_s: {scrape_s}
  webhook: {{url: "http://127.0.0.1:{hook}/alerts", token_file: {token}}}
"""


@dataclass
class Watched:
    server: Server
    prometheus: Prometheus
    hook: Webhook
    monitoring: Path
    faults: Path
    first_refusal_s: list[float]
    """When a client was first told that nothing is served."""

    def strike(self) -> None:
        new = self.faults.with_suffix(".new")
        new.write_text(json.dumps({"fault": "lose_kv"}), encoding="utf-8")
        new.rename(self.faults)


@pytest.fixture(scope="module")
def watched(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    from scripts.benchlib import synthetic_bundle

    folder = tmp_path_factory.mktemp("alerts")
    bundle = synthetic_bundle(folder / "bundle")
    model = StepModel(
        base_points=((1, 8.0), (512, 20.0)), kv_read_ms_per_token=0.0, attention_ms_per_token2=0.0, source="test"
    )
    (bundle / BUNDLE_FILE).write_text(replace(Bundle.load(bundle), step_model=model).to_json(), encoding="utf-8")
    ports = {name: free_port() for name in ("metrics", "alertmanager", "prometheus")}
    (folder / "token").write_text("the-token", encoding="utf-8")
    with webhook() as hook, contextlib.ExitStack() as stack:
        settings = folder / "seekserve.yaml"
        settings.write_text(
            SETTINGS.format(**ports, hook=hook.port, token=folder / "token", scrape_s=SCRAPE_S), encoding="utf-8"
        )
        run_cli("render", bundle, "--out", folder / "repository", "--config", settings, "--monitoring")
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setitem(os.environ, FAULTS_VARIABLE, str(folder / "faults.json"))
        server = Server(deployment, "--metrics-port", str(ports["metrics"]), repository=folder / "repository")
        stack.callback(server.stop)
        prometheus = stack.enter_context(
            watching(
                folder / "repository.monitoring",
                folder,
                prometheus_port=ports["prometheus"],
                alertmanager_port=ports["alertmanager"],
            )
        )
        made = Watched(server, prometheus, hook, folder / "repository.monitoring", folder / "faults.json", [])
        stack.enter_context(loaded(made))
        yield made


@contextlib.contextmanager
def loaded(watched: Watched) -> Iterator[None]:
    is_over = threading.Event()

    def ask(number: int) -> None:
        kind = "offline" if number == 0 else "chat"
        with Client(watched.server.grpc, "synthetic") as client:
            while not is_over.is_set():
                try:
                    client.generate(GenerateRequest(prompt="again " * 20, max_tokens=30, request_class=kind))
                except Refused as error:
                    if error.code == "not_serving":
                        watched.first_refusal_s.append(time.monotonic())
                    is_over.wait(0.2)
                except SeekserveError:
                    is_over.wait(0.05)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)


def test_every_panel_of_the_dashboard_has_data(watched: Watched) -> None:
    board = json.loads((watched.monitoring / "grafana/dashboards/seekserve.json").read_text("utf-8"))
    wanted = [(title, expr) for title, expr in expressions(board) if title != "Alerts that fire"]
    deadline = time.monotonic() + 60
    while empty := [(title, expr) for title, expr in wanted if not watched.prometheus.query(expr)]:
        assert time.monotonic() < deadline, empty
        time.sleep(1)
    values = [float(row["value"][1]) for _, expr in wanted for row in watched.prometheus.query(expr)]
    assert len(values) >= len(wanted)
    print(f"{len(wanted)} queries of the dashboard give {len(values)} series")


def test_nothing_fires_on_a_server_that_is_well(watched: Watched) -> None:
    firing = watched.prometheus.query('ALERTS{alertstate="firing"}')
    assert [row["metric"]["alertname"] for row in firing] == []
    assert watched.prometheus.query("model_process:seekserve_requests_unaccounted:difference != 0") == []
    assert watched.prometheus.query("model_process:seekserve_requests_unaccounted:difference") != []


def test_a_failing_engine_reaches_the_webhook_in_the_stated_time(watched: Watched) -> None:
    deadline = time.monotonic() + 60
    while not watched.first_refusal_s:
        assert time.monotonic() < deadline, "the breaker does not open"
        watched.strike()
        time.sleep(0.2)
    opened_s = watched.first_refusal_s[0]
    while (told_s := watched.hook.told_s("SeekserveBreakerOpen")) is None:
        assert time.monotonic() < opened_s + 60, watched.prometheus.query("ALERTS")
        time.sleep(0.05)
    delay_s = told_s - opened_s
    print(f"SeekserveBreakerOpen reached the webhook {delay_s:.1f} s after the first refusal (stated: {STATED_S} s)")
    assert delay_s < STATED_S * SLACK
    (body, token) = next(
        (body, token)
        for _, body, token in watched.hook.heard
        if any(each["labels"]["alertname"] == "SeekserveBreakerOpen" for each in body["alerts"])
    )
    assert token == "Bearer the-token"
    assert body["receiver"] == "critical"
    annotations = body["alerts"][0]["annotations"]
    assert annotations["summary"].startswith("synthetic: the breaker opened")
    assert "log" in annotations["do"]
