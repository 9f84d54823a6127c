"""The monitoring files of a deployment: built as data, checked, and only then text."""

from __future__ import annotations

import json
from collections.abc import Mapping

from seekserve.output import json_text
from seekserve.plan.plan import Unset
from seekserve.settings import Settings
from seekserve_backend.contract.policy import Policy

from .alertmanager import alertmanager_data
from .alerts import alerts
from .check import check_dashboard, check_rules
from .choices import read_choices
from .dashboard import dashboard
from .gpu import counters_csv, gpu_alerts
from .prometheus import ALERTS_FILE, RECORDINGS_FILE, alert_file, prometheus_data, recording_file
from .provisioning import dashboards_data, datasources_data
from .recording import recordings
from .rule import Alert, Recording
from .subject import Subject

__all__ = ["all_alerts", "files_of", "monitoring_files"]

_HEAD = (
    "# Made by `seekserve render --monitoring`; change the `monitoring` section of seekserve.yaml and render again.\n"
)


def monitoring_files(policy: Policy, settings: Settings, metrics_port: int) -> Mapping[str, str]:
    """Path inside the folder -> text. Raises ConfigError for what the settings get wrong."""
    host = settings.server.host
    # A server that listens on every address is asked from the same machine.
    name = "127.0.0.1" if isinstance(host, Unset) or host in ("0.0.0.0", "::") else host
    choices = read_choices(
        settings.monitoring, default_target=f"{name}:{metrics_port}", where=f"{settings.path}: monitoring"
    )
    return files_of(Subject(policy=policy, choices=choices))


def all_alerts(subject: Subject) -> list[Alert]:
    return [*alerts(subject), *(gpu_alerts() if subject.choices.dcgm else [])]


def files_of(subject: Subject) -> dict[str, str]:
    recorded: list[Recording] = recordings(subject)
    alarms = all_alerts(subject)
    panels = dashboard(subject)
    check_rules(recorded, alarms)
    check_dashboard(panels, recorded)
    files = {
        "prometheus.yml": _yaml(prometheus_data(subject.choices)),
        RECORDINGS_FILE: _yaml(recording_file(recorded)),
        ALERTS_FILE: _yaml(alert_file(alarms)),
        "alertmanager.yml": _yaml(alertmanager_data(subject.choices)),
        "grafana/dashboards/seekserve.json": json_text(panels) + "\n",
        "grafana/provisioning/datasources/seekserve.yml": _yaml(datasources_data()),
        "grafana/provisioning/dashboards/seekserve.yml": _yaml(dashboards_data()),
    }
    if subject.choices.dcgm:
        files["dcgm/counters.csv"] = counters_csv()
    return files


def _yaml(data: Mapping[str, object]) -> str:
    import yaml

    text: str = yaml.safe_dump(dict(data), sort_keys=False, width=1000, allow_unicode=True)
    assert json.dumps(yaml.safe_load(text)) == json.dumps(data), "what is read back is what was meant"
    return _HEAD + text
