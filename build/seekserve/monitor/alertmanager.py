"""Alertmanager's configuration: who is told what, how fast, and what is left out because something worse says it."""

from __future__ import annotations

from .choices import Hook, MonitoringChoices
from .rule import CRITICAL, INFO, WARNING

__all__ = ["GROUP_WAIT_S", "alertmanager_data"]

GROUP_WAIT_S = 5
"""How long the first alert of a group waits for others."""


def alertmanager_data(choices: MonitoringChoices) -> dict[str, object]:
    """The webhook gets all; mail begins with warnings, SMS (a gateway that takes this webhook) with critical ones."""
    receivers = {
        severity: _receiver(severity, choices, mail=severity != INFO, sms=severity == CRITICAL)
        for severity in (CRITICAL, WARNING, INFO)
    }
    return {
        "route": {
            "receiver": INFO,
            "group_by": ["model", "alertname"],
            "group_wait": f"{GROUP_WAIT_S}s",
            "group_interval": "1m",
            "repeat_interval": "4h",
            "routes": [
                {"matchers": [f'severity="{CRITICAL}"'], "receiver": CRITICAL, "repeat_interval": "1h"},
                {"matchers": [f'severity="{WARNING}"'], "receiver": WARNING},
            ],
        },
        "inhibit_rules": [
            # A dead process explains everything else about its model.
            {
                "source_matchers": ['alertname="SeekserveStubDead"'],
                "target_matchers": ['alertname=~"SeekserveEngineStuck|SeekserveStreamStalled|SeekserveBudgetBurn.*"'],
                "equal": ["model"],
            },
            {
                "source_matchers": ['alertname="SeekserveTargetDown"'],
                "target_matchers": ['alertname="SeekserveNothingPublished"'],
            },
            # Of the burn rates the fastest says it all.
            {
                "source_matchers": ['burn="fast"'],
                "target_matchers": ['burn=~"steady|slow|creeping"'],
                "equal": ["model", "class"],
            },
        ],
        "receivers": list(receivers.values()),
    }


def _receiver(name: str, choices: MonitoringChoices, *, mail: bool, sms: bool) -> dict[str, object]:
    out: dict[str, object] = {"name": name}
    hooks = [_webhook(hook) for hook in (choices.webhook, choices.sms if sms else None) if hook is not None]
    if hooks:
        out["webhook_configs"] = hooks
    email = choices.email
    if email is not None and mail:
        out["email_configs"] = [
            {
                "to": email.to,
                "from": email.sender,
                "smarthost": email.smarthost,
                "send_resolved": True,
                **(
                    {}
                    if email.username is None
                    else {"auth_username": email.username, "auth_password_file": email.password_file}
                ),
            }
        ]
    return out


def _webhook(hook: Hook) -> dict[str, object]:
    data: dict[str, object] = {"url": hook.url, "send_resolved": True}
    if hook.token_file is not None:
        data["http_config"] = {"authorization": {"type": "Bearer", "credentials_file": hook.token_file}}
    return data
