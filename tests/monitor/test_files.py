from __future__ import annotations

import json

import pytest
import yaml
from tests.monitor.subjects import subject

from seekserve.errors import ConfigError
from seekserve.monitor.alertmanager import alertmanager_data
from seekserve.monitor.check import check_dashboard, expressions, unknown_names
from seekserve.monitor.choices import read_choices
from seekserve.monitor.dashboard import dashboard
from seekserve.monitor.files import all_alerts, files_of
from seekserve.monitor.recording import recordings
from seekserve_backend.contract.policy import POLICY_KINDS


@pytest.mark.parametrize("kind", POLICY_KINDS)
def test_every_kind_of_policy_has_files_that_pass_their_checks(kind: str) -> None:
    files = files_of(subject(kind))
    for path, text in files.items():
        if path.endswith(".yml"):
            assert isinstance(yaml.safe_load(text), dict)
    rungs = [alert.name for alert in all_alerts(subject(kind)) if alert.name.startswith("SeekserveRung")]
    assert rungs == ([f"SeekserveRung{n}" for n in (1, 2, 3, 4)] if kind == "paced" else [])


def test_what_is_not_watched_has_no_rule_job_or_panel() -> None:
    bare = subject(dcgm=[], gateways=[], email=None, webhook=None, sms=None)
    files = files_of(bare)
    assert "dcgm/counters.csv" not in files
    assert "DCGM" not in "".join(files.values())
    config = yaml.safe_load(files["prometheus.yml"])
    assert [job["job_name"] for job in config["scrape_configs"]] == ["seekserve"]
    assert "SeekserveGatewayDown" not in files["rules/seekserve.alerts.yml"]
    assert [set(each) for each in yaml.safe_load(files["alertmanager.yml"])["receivers"]] == [{"name"}] * 3


def test_nothing_is_rendered_twice_differently() -> None:
    assert files_of(subject()) == files_of(subject())


def test_secrets_stay_in_their_files() -> None:
    text = "".join(files_of(subject()).values())
    assert "auth_password_file: /etc/alertmanager/smtp_password" in text
    assert "credentials_file: /etc/alertmanager/sms_token" in text
    assert "password:" not in text


def test_sms_is_for_critical_alerts_and_mail_begins_with_warnings() -> None:
    data = yaml.safe_load(yaml.safe_dump(alertmanager_data(subject().choices)))
    receivers = {each["name"]: each for each in data["receivers"]}
    hooks = {name: [hook["url"] for hook in each["webhook_configs"]] for name, each in receivers.items()}
    general, sms = "https://hooks.example.org/seekserve", "https://sms.example.org/send"
    assert hooks == {"critical": [general, sms], "warning": [general], "info": [general]}
    assert {name for name, each in receivers.items() if "email_configs" in each} == {"critical", "warning"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"targets": []}, "targets: expected a list of HOST:PORT"),
        ({"targets": ["http://h:1"]}, "targets: expected HOST:PORT, got 'http://h:1'"),
        ({"targets": ["h:70000"]}, "targets: expected HOST:PORT, got 'h:70000'"),
        ({"dcgm": ["h:1\n- evil"]}, "dcgm: expected HOST:PORT"),
        ({"scrape_interval_s": 60}, "scrape_interval_s: expected at most 15, got 60"),
        ({"objective": 0.5}, "objective: expected at least 0.95, got 0.5"),
        ({"objektive": 0.99}, "objektive: unknown key (did you mean objective?)"),
        ({"webhook": {"url": "ftp://h"}}, "webhook.url: expected http:// or https:// with a host"),
        ({"webhook": {"url": "https://h:x/"}}, "webhook.url: expected http:// or https:// with a host"),
        ({"sms": {"url": "https://u:p@h/"}}, "sms.url: holds a user, a password or a query"),
        ({"sms": {"url": "https://h/", "token": "s"}}, "sms.token: unknown key (did you mean token_file?)"),
        ({"sms": {"url": "https://h/", "token_file": "t"}}, "sms.token_file: expected the absolute path"),
        ({"email": {"to": "x", "from": "a@b.c", "smarthost": "h:1"}}, "email.to: expected one mail address, got 'x'"),
        ({"email": {"to": "a@b.c", "from": "a@b.c", "smarthost": "h"}}, "email.smarthost: expected HOST:PORT"),
        (
            {"email": {"to": "a@b.c", "from": "a@b.c", "smarthost": "h:1", "username": "u"}},
            "email.username and password_file belong together",
        ),
    ],
)
def test_a_bad_choice_is_named(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_choices(changes, default_target="127.0.0.1:8002", where="seekserve.yaml: monitoring")
    assert says in str(caught.value)
    assert "p@h" not in str(caught.value), "a password is not repeated"


def test_the_default_target_is_the_launch_of_this_machine() -> None:
    assert read_choices({}, default_target="127.0.0.1:8002", where="w").targets == ("127.0.0.1:8002",)


@pytest.mark.parametrize(
    ("expr", "unknown"),
    [
        ("sum by (model) (rate(seekserve_requests_offered_total[1m]))", []),
        ("sum by (modell) (rate(seekserve_requests_offered[1m]))", ["modell", "seekserve_requests_offered"]),
        ('seekserve_rung{clas="x and y"} > 1e3 or vector(0)', ["clas"]),
        ("seekserve_queue_time_seconds", ["seekserve_queue_time_seconds"]),
        ("histogram_quantile(0.9, seekserve_queue_time_seconds_bucket) and on (le) up offset 5m", []),
        ("model:seekserve_kv_used:ratio > 0.97", ["model:seekserve_kv_used:ratio"]),
    ],
)
def test_names_that_nobody_publishes_are_found(expr: str, unknown: list[str]) -> None:
    assert unknown_names(expr, []) == unknown


@pytest.mark.parametrize("kind", ["paced", "fcfs"])
def test_the_dashboard_says_what_each_panel_means(kind: str) -> None:
    board = json.loads(json.dumps(dashboard(subject(kind))))
    check_dashboard(board, recordings(subject(kind)))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    for panel in panels:
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert steps[0]["value"] is None
        assert [s["value"] for s in steps[1:]] == sorted(s["value"] for s in steps[1:])
    assert [panel["gridPos"]["y"] for panel in panels[:6]] == [0] * 6, "the answer comes first"
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    assert rows == ["Requests", "Batches", "Resources"]
    assert len(list(expressions(board))) > len(panels)


def test_the_targets_of_operation_are_drawn_in() -> None:
    panels = {panel["title"]: panel for panel in json.loads(json.dumps(dashboard(subject())))["panels"]}

    def marks(title: str) -> list[float]:
        return [s["value"] for s in panels[title]["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]]

    assert marks("KV cache")[0] == 0.85
    assert marks("Batch formation P99") == [0.005]
    assert marks("HBM bandwidth") == [0.75, 0.85]
    assert marks("TPOT by class") == [0.05]


def test_no_line_is_told_from_another_by_red_and_green() -> None:
    """The colours are Okabe and Ito's; a line has a colour or a dash of its own."""
    for panel in json.loads(json.dumps(dashboard(subject())))["panels"]:
        looks = [json.dumps(each["properties"]) for each in panel.get("fieldConfig", {}).get("overrides", ())]
        assert len({*looks}) == len(looks), panel["title"]


def test_every_alert_says_what_to_do() -> None:
    for alert in all_alerts(subject()):
        assert alert.summary
        assert not alert.summary.endswith(".")
        assert alert.do.endswith(".") or alert.do.endswith(")."), alert.name
        assert alert.severity in ("critical", "warning", "info")
