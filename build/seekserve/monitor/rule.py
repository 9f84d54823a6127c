"""A recording rule and an alert, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CRITICAL", "INFO", "WARNING", "Alert", "Recording", "duration"]

CRITICAL, WARNING, INFO = "critical", "warning", "info"
"""Woken up for it; looked at today; seen on the dashboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """`record` is named level:metric:operation, as Prometheus recommends."""

    record: str
    expr: str
    unit: str

    def to_data(self) -> dict[str, object]:
        return {"record": self.record, "expr": self.expr}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    name: str
    expr: str
    severity: str
    summary: str
    """One line, with the label `model` and the value in it."""
    do: str
    """What the operator does about it, in order."""
    for_s: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_data(self) -> dict[str, object]:
        return {
            "alert": self.name,
            "expr": self.expr,
            **({"for": duration(self.for_s)} if self.for_s else {}),
            "labels": {"severity": self.severity, **self.labels},
            "annotations": {"summary": self.summary, "do": self.do},
        }


def duration(seconds: int) -> str:
    """In the largest unit of Prometheus that is exact."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
