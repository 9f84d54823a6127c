"""One panel of the dashboard as data, and how it becomes Grafana's JSON.

Colours are Okabe and Ito's, which people with any colour blindness can tell apart; where there are more lines than
colours, and for quantiles, the line's dash says the rest. Good is blue and bad is vermilion, never green and red.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .provisioning import DATASOURCE

__all__ = ["BAD", "GOOD", "WORSE", "Line", "Panel", "Query", "line_styles", "panel_data", "row_data"]

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
GOOD, WORSE, BAD = "#0072B2", "#E69F00", "#D55E00"
_DASHES: tuple[tuple[int, ...], ...] = ((), (10, 6), (2, 4))


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Line:
    """How the line with one legend looks."""

    colour: str
    dash: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    description: str
    """What it shows, and what is good."""
    unit: str
    """Of Grafana: `s`, `percentunit`, `reqps`, `short` ..."""
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    steps: tuple[tuple[float | None, str], ...] = ()
    """(from this value on, colour); the first has no value. On a time series they are drawn as bands."""
    lines: Mapping[str, Line] = field(default_factory=dict)
    words: Mapping[float, str] = field(default_factory=dict)
    """What a value is called."""
    least: float | None = 0.0
    most: float | None = None


def line_styles(names: Sequence[str]) -> dict[str, Line]:
    """By legend: colours first, then the same again dashed."""
    count = len(_COLOURS)
    return {n: Line(_COLOURS[i % count], _DASHES[i // count % len(_DASHES)]) for i, n in enumerate(names)}


def row_data(id: int, title: str, y: int) -> dict[str, object]:
    return {
        "id": id,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
        "panels": [],
    }


def panel_data(panel: Panel, id: int, x: int, y: int) -> dict[str, object]:
    return {
        "id": id,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": dict(DATASOURCE),
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": [
            {
                "refId": chr(ord("A") + n),
                "datasource": dict(DATASOURCE),
                "expr": query.expr,
                "legendFormat": query.legend,
                **({"instant": True, "format": "table"} if panel.kind == "table" else {"range": True}),
            }
            for n, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": [_override(n, s) for n, s in panel.lines.items()]},
        "options": _options(panel),
    }


def _defaults(panel: Panel) -> dict[str, object]:
    steps = panel.steps or ((None, GOOD),)
    data: dict[str, object] = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if panel.kind == "stat" else "fixed", "fixedColor": GOOD},
        "thresholds": {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]},
        "mappings": [
            {"type": "value", "options": {f"{value:g}": {"text": text, "index": n}}}
            for n, (value, text) in enumerate(panel.words.items())
        ],
        "noValue": "no data",
    }
    if panel.least is not None:
        data["min"] = panel.least
    if panel.most is not None:
        data["max"] = panel.most
    if panel.kind == "timeseries":
        data["custom"] = {
            "drawStyle": "line",
            "lineWidth": 2,
            "fillOpacity": 0,
            "showPoints": "never",
            "spanNulls": False,
            "thresholdsStyle": {"mode": "line+area" if panel.steps else "off"},
        }
    return data


def _override(name: str, line: Line) -> dict[str, object]:
    properties: list[dict[str, object]] = [{"id": "color", "value": {"mode": "fixed", "fixedColor": line.colour}}]
    if line.dash:
        properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": list(line.dash)}})
    return {"matcher": {"id": "byName", "options": name}, "properties": properties}


def _options(panel: Panel) -> dict[str, object]:
    if panel.kind == "timeseries":
        return {
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "values": False, "fields": ""},
            "colorMode": "background",
            "graphMode": "area",
            "textMode": "auto",
        }
    return {"showHeader": True}
