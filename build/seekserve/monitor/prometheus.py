"""Prometheus's own configuration and its rule files, as data."""

from __future__ import annotations

from collections.abc import Sequence

from .choices import MonitoringChoices
from .rule import Alert, Recording, duration

__all__ = ["ALERTS_FILE", "RECORDINGS_FILE", "alert_file", "prometheus_data", "recording_file"]

RECORDINGS_FILE = "rules/seekserve.recording.yml"
ALERTS_FILE = "rules/seekserve.alerts.yml"


def prometheus_data(choices: MonitoringChoices) -> dict[str, object]:
    jobs = (("seekserve", choices.targets), ("seekserve-gateway", choices.gateways), ("dcgm", choices.dcgm))
    data: dict[str, object] = {
        "global": {
            "scrape_interval": duration(choices.scrape_interval_s),
            "scrape_timeout": duration(choices.scrape_interval_s),
            "evaluation_interval": duration(choices.scrape_interval_s),
        },
        "rule_files": [RECORDINGS_FILE, ALERTS_FILE],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": list(targets)}]} for name, targets in jobs if targets
        ],
    }
    if choices.alertmanagers:
        data["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": list(choices.alertmanagers)}]}]}
    return data


def recording_file(recordings: Sequence[Recording]) -> dict[str, object]:
    return {"groups": [{"name": "seekserve.recording", "rules": [each.to_data() for each in recordings]}]}


def alert_file(alerts: Sequence[Alert]) -> dict[str, object]:
    """The rule files are read in their order, so alerts see what was recorded in the same round or the one before."""
    return {"groups": [{"name": "seekserve.alerts", "rules": [each.to_data() for each in alerts]}]}
