"""The tables of the operators' documentation, from the same data as everything else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from seekserve_backend.contract.metric_names import FAMILIES
from seekserve_backend.contract.policy import ClassPolicy, Policy

from .alertmanager import GROUP_WAIT_S
from .choices import MonitoringChoices
from .files import all_alerts
from .recording import recordings
from .rule import Alert, duration
from .subject import Subject

__all__ = ["SECTIONS", "alert_delay_s", "documented_subject"]


def documented_subject() -> Subject:
    """The `paced` policy with a promise, everything watched."""
    chat = ClassPolicy(priority=0, max_queue_requests=256, deadline_ms=30_000, tpot_slo_ms=50)
    policy = Policy(name="paced", kind="paced", classes={"interactive": chat}, default_class="interactive")
    return Subject(
        policy=policy,
        choices=MonitoringChoices(targets=("127.0.0.1:8002",), gateways=("127.0.0.1:8080",), dcgm=("127.0.0.1:9400",)),
    )


def alert_delay_s(alert: Alert, choices: MonitoringChoices) -> int:
    """From the moment its condition holds until Alertmanager tells somebody, at most.

    The backend's flush, a scrape, an evaluation (two where it looks at a recorded series), the alert's own patience in
    whole evaluations, and Alertmanager's wait for others of the group.
    """
    interval_s = choices.scrape_interval_s
    is_recorded = any(each.record in alert.expr for each in recordings(documented_subject()))
    evaluations = 1 + is_recorded - (-alert.for_s // interval_s)
    return 1 + interval_s + evaluations * interval_s + GROUP_WAIT_S


def _metrics() -> list[str]:
    rows = [
        [f"`{f.name}`", f.kind.value, ", ".join(f"`{label}`" for label in f.labels), f.unit, f.help] for f in FAMILIES
    ]
    return _table(("Metric", "Kind", "Labels", "Unit", "What it says"), rows)


def _recordings() -> list[str]:
    return _table(("Recorded", "Unit"), [[f"`{r.record}`", r.unit] for r in recordings(documented_subject())])


def _alerts() -> list[str]:
    subject = documented_subject()
    rows = [
        [
            f"`{a.name}`",
            a.severity,
            duration(a.for_s) if a.for_s else "at once",
            f"{alert_delay_s(a, subject.choices)} s",
            re.sub(r"\{\{ \$(?:labels[.])?(\w+)[^}]*\}\}", r"{\1}", a.summary),
            a.do,
        ]
        for a in all_alerts(subject)
    ]
    return _table(("Alert", "Severity", "After", "Told within", "It says", "What to do"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


SECTIONS = {"metrics": _metrics, "recordings": _recordings, "alerts": _alerts}
"""Name of a section in docs/monitoring.md -> its lines."""
