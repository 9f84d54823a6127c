"""The Grafana dashboard: rows of panels, each given its place."""

from __future__ import annotations

from .panel import Panel, panel_data, row_data
from .panels import answer, batches, requests, resources
from .provisioning import DATASOURCE
from .subject import Subject

__all__ = ["dashboard"]

_COLUMNS = 24


def dashboard(subject: Subject) -> dict[str, object]:
    rows = (
        ("", answer(subject)),
        ("Requests", requests(subject)),
        ("Batches", batches(subject)),
        ("Resources", resources(subject)),
    )
    return {
        "uid": "seekserve",
        "title": "seekserve",
        "description": "Requests, batches and resources of DeepSeek services. The top row is the answer.",
        "tags": ["seekserve"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "templating": {"list": [_model_variable()]},
        "annotations": {"list": []},
        "panels": _placed(rows),
    }


def _model_variable() -> dict[str, object]:
    query = "label_values(seekserve_flush_timestamp_seconds, model)"
    return {
        "name": "model",
        "label": "Model",
        "type": "query",
        "datasource": dict(DATASOURCE),
        "query": {"query": query, "refId": "models"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(rows: tuple[tuple[str, list[Panel]], ...]) -> list[dict[str, object]]:
    """From left to right; the next line begins below the tallest panel of this one."""
    placed: list[dict[str, object]] = []
    y = 0
    for title, panels in rows:
        if title:
            placed.append(row_data(len(placed) + 1, title, y))
            y += 1
        x = height = 0
        for panel in panels:
            if x + panel.width > _COLUMNS:
                x, y, height = 0, y + height, 0
            placed.append(panel_data(panel, len(placed) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return placed
