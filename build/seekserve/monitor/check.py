"""Every expression names metrics and labels that exist, every panel has a place: checked before anything is written.

Not a parser of PromQL (promtool is one): it finds the names in an expression and looks them up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from seekserve_backend.contract.metric_names import COMMON_LABELS, FAMILIES, Kind

from .gpu import DCGM_FIELDS
from .rule import Alert, Recording

__all__ = ["check_dashboard", "check_rules", "expressions", "unknown_names"]

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
_BRACES = re.compile(r"\{([^}]*)\}")
_RANGE = re.compile(r"\[[^\]]*\]|\boffset\s+\S+")
_NUMBER = re.compile(r"(?<![\w:])\d[\w.+-]*")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_FUNCTION = re.compile(r"[a-zA-Z_]\w*\s*\(")
_WORDS = {"and", "or", "unless", "bool"}
_TARGET_LABELS = {"job", "instance", "le", "gpu", "Hostname", "modelName"}
_FROM_PROMETHEUS = {"up", "ALERTS"}
_FROM_TRITON = {"nv_cpu_utilization"}
_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def known_metrics(recorded: Collection[str]) -> set[str]:
    names = {f.name for f in FAMILIES if f.kind is not Kind.HISTOGRAM}
    names |= {f.name + part for f in FAMILIES if f.kind is Kind.HISTOGRAM for part in _HISTOGRAM_PARTS}
    return names | {field.name for field in DCGM_FIELDS} | _FROM_PROMETHEUS | _FROM_TRITON | set(recorded)


_LABELS = {*COMMON_LABELS, *_TARGET_LABELS, "alertname", "alertstate", "severity"} | {
    label for family in FAMILIES for label in family.labels
}


def unknown_names(expr: str, recorded: Collection[str]) -> list[str]:
    """Metrics and labels in the expression that nothing publishes."""
    rest = _STRING.sub('""', expr)
    labels = [name for _, names in _GROUPING.findall(rest) for name in re.findall(r"\w+", names)]
    rest = _GROUPING.sub(" ", rest)
    labels += [name for body in _BRACES.findall(rest) for name in re.findall(r"(\w+)\s*[=!]", body)]
    rest = _NUMBER.sub(" ", _RANGE.sub(" ", _BRACES.sub(" ", rest)))
    rest = _FUNCTION.sub("(", rest)
    metrics = [name for name in _NAME.findall(rest) if name not in _WORDS]
    known = known_metrics(recorded)
    return sorted({name for name in metrics if name not in known} | {name for name in labels if name not in _LABELS})


def check_rules(recorded: Sequence[Recording], alarms: Sequence[Alert]) -> None:
    """A failure is a fault of this package, not of the settings."""
    names = [each.record for each in recorded]
    assert len({*names}) == len(names), "each recorded once"
    titles = [each.name for each in alarms]
    assert len({*titles}) == len(titles), "each alert has its own name"
    for name, expr in [*((r.record, r.expr) for r in recorded), *((a.name, a.expr) for a in alarms)]:
        assert not (unknown := unknown_names(expr, names)), f"{name}: nothing publishes {unknown}"


def check_dashboard(board: Mapping[str, Any], recorded: Sequence[Recording]) -> None:
    """As above."""
    names = [each.record for each in recorded]
    ids = [panel["id"] for panel in board["panels"]]
    assert len({*ids}) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
    for title, expr in expressions(board):
        assert not (unknown := unknown_names(expr, names)), f"{title}: nothing publishes {unknown}"


def expressions(board: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(panel's title, expression) with the dashboard's variables filled in as for all models."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$model", ".*").replace("$__rate_interval", "1m")
