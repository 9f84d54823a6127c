"""Deployments to watch: one of each policy kind, with everything that can be watched."""

from __future__ import annotations

from seekserve.monitor.choices import MonitoringChoices, read_choices
from seekserve.monitor.subject import Subject
from seekserve_backend.contract.policy import ClassPolicy, Policy

__all__ = ["CHOICES", "choices", "subject"]

CHOICES: dict[str, object] = {
    "targets": ["10.0.0.5:8002", "10.0.0.6:8002"],
    "gateways": ["10.0.0.5:8080"],
    "dcgm": ["10.0.0.5:9400"],
    "email": {
        "to": "ops@example.org",
        "from": "seekserve@example.org",
        "smarthost": "mail.example.org:587",
        "username": "seekserve",
        "password_file": "/etc/alertmanager/smtp_password",
    },
    "webhook": {"url": "https://hooks.example.org/seekserve", "token_file": "/etc/alertmanager/webhook_token"},
    "sms": {"url": "https://sms.example.org/send", "token_file": "/etc/alertmanager/sms_token"},
}


def choices(**changes: object) -> MonitoringChoices:
    return read_choices({**CHOICES, **changes}, default_target="127.0.0.1:8002", where="monitoring")


def subject(kind: str = "paced", **changes: object) -> Subject:
    classes = {
        "chat": ClassPolicy(priority=0, max_queue_requests=9, deadline_ms=1000, tpot_slo_ms=50),
        "off.line": ClassPolicy(priority=1, max_queue_requests=9, deadline_ms=90_000, is_offline=True),
    }
    return Subject(
        policy=Policy(name="p", kind=kind, classes=classes, default_class="chat"), choices=choices(**changes)
    )
