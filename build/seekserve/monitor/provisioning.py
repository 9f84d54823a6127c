"""How Grafana finds the data and the dashboard (mount the folder's `grafana` at /etc/grafana/seekserve)."""

from __future__ import annotations

__all__ = ["DATASOURCE", "dashboards_data", "datasources_data"]

DATASOURCE = {"type": "prometheus", "uid": "seekserve-prometheus"}


def datasources_data() -> dict[str, object]:
    """Grafana fills in PROMETHEUS_URL from its environment."""
    return {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Prometheus (seekserve)",
                "type": DATASOURCE["type"],
                "uid": DATASOURCE["uid"],
                "access": "proxy",
                "url": "${PROMETHEUS_URL}",
                "isDefault": False,
            }
        ],
    }


def dashboards_data() -> dict[str, object]:
    return {
        "apiVersion": 1,
        "providers": [
            {
                "name": "seekserve",
                "type": "file",
                "allowUiUpdates": False,
                "options": {"path": "/etc/grafana/seekserve/dashboards"},
            }
        ],
    }
